"""Spaces: named axes, and a generator that emits a descriptor for each piece of work in them.

A descriptor is what a task record is, so a generator is a workload: it is traced once, its axes are
loops that a schedule can name, and `emit` is a kernel call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from keyword import iskeyword
from types import FunctionType
from typing import Any

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, MissingAttribute
from pto_wsp.frontend.axes import Dense, DenseDyn
from pto_wsp.frontend.axis_params import ArrayParam, AxisParam, extent_of
from pto_wsp.frontend.conditions import when
from pto_wsp.frontend.directives import Schedule
from pto_wsp.frontend.emission import complete, emit
from pto_wsp.frontend.handles import Handle
from pto_wsp.frontend.kernels import IndexedKernel, Kernel
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    SymBool,
    SymFloat,
    SymInt,
    as_int,
    as_symint,
    is_integer,
)
from pto_wsp.frontend.space_axes import AxisSpec, SpaceAxis
from pto_wsp.frontend.tensor import Element
from pto_wsp.frontend.tiers import Selected
from pto_wsp.frontend.trace import Tracer, active, current
from pto_wsp.frontend.workloads import Workload, WorkloadFunction, workload


class Space:
    """Named axes, a constraint on their indices, and a generator of descriptors.

    `where` is asked for each descriptor: it names axes as its parameters, and work for which it
    does not hold is not there. It gets indices, which of an axis with tiles are tiles.
    """

    def __init__(
        self, name: str, /, *, where: Callable[..., BoolLike] | None = None, **axes: AxisSpec
    ) -> None:
        _check_axes(name, {} if where is None else {"where": where}, axes)
        self.name = name
        # Copies, so that no two axes are one object.
        self.axes = {name: replace(spec) for name, spec in axes.items()}
        self.where = where
        self.generates: Generator | None = None
        if where is not None:
            _check_where(self, where)

    def __repr__(self) -> str:
        return f"<space {self.name}({', '.join(self.axes)})>"

    def generator(self, schedule: Schedule | Callable[..., None] | None = None) -> Any:
        """`@space.generator` or `@space.generator(schedule)` on a function `(s, inputs ...)`: `s`
        holds the axes as attributes, and `s.emit(kernel, ...)` emits a descriptor."""
        if schedule is None or isinstance(schedule, Schedule):
            return functools.partial(self._generator, schedule=schedule)
        return self._generator(schedule, None)

    def _generator(self, function: object, schedule: Schedule | None) -> Generator:
        if self.generates is not None:
            raise _error(
                f"a second generator of space {self.name}",
                f"launch(...) runs the one that it has, {self.generates.function.__name__}",
                "make a space for each generator",
            )
        if not isinstance(function, FunctionType):
            raise _error(
                f"the generator of space {self.name} is {type(function).__name__}",
                "a generator is a function, and what stands before it a schedule",
                "write @space.generator or @space.generator(Schedule(...)) before `def`",
            )
        self.generates = Generator(self, function, schedule)
        return self.generates


class Generator(WorkloadFunction):
    """A workload function made from the generator of a space: its parameters are those of the
    generator, then the names at which axes end."""

    def __init__(self, space: Space, function: FunctionType, schedule: Schedule | None) -> None:
        self.space = space
        self.schedule = schedule
        given = list(inspect.signature(function).parameters.values())
        if not given:
            raise _error(
                f"generator {function.__name__} of space {space.name} has no parameter",
                "the first one is the space",
                f"write def {function.__name__}(s, ...)",
            )
        ends = dict.fromkeys(s.end for s in space.axes.values() if isinstance(s.end, str))
        self.ends = tuple(end for end in ends if end not in {p.name for p in given})
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(end, keyword) for end in self.ends]

        @functools.wraps(function)
        def traced(**values: Any) -> None:
            mine = {n: values[n] for n in values if n not in self.ends}
            function(SpaceView(space, values), **mine)

        traced.__dict__["__signature__"] = inspect.Signature([*given[1:], *added])
        super().__init__(workload(traced).function)

    def __call__(self, *args: Any, **kwargs: Any) -> Workload:
        if active() is not None and self.schedule is not None:
            raise _error(
                f"generator {self.function.__name__} has a schedule and is called in a workload",
                "a schedule applies to a whole program",
                "leave it out, and give it to the workload around: work(...).under(schedule)",
            )
        if active() is not None:
            return super().__call__(*args, **kwargs)
        given = {name: kwargs[name] for name in self.ends if name in kwargs}
        numbers = {n: as_int(v) for n, v in given.items() if not isinstance(v, bool)}
        ends = {n: DenseDyn(number) for n, number in numbers.items() if number is not None}
        made = super().__call__(*args, **{**kwargs, **ends})
        return made if self.schedule is None else made.under(self.schedule)


class SpaceView:
    """What a generator sees of its space: the axes as attributes, and `emit`."""

    def __init__(self, space: Space, values: Mapping[str, object]) -> None:
        self._space = space
        tracer = current(f"space {space.name}")
        self._axes = {n: _seen(tracer, n, spec, values) for n, spec in space.axes.items()}

    def __getattr__(self, name: str) -> SpaceAxis:
        if name.startswith("_"):  # Python asks for these by itself
            raise AttributeError(name)
        found = self._axes.get(name)
        if found is not None:
            return found
        raise MissingAttribute(
            Code.SPACE,
            f"space {self._space.name} has no axis {name}",
            loc=srcloc.here(),
            why=f"its axes are {', '.join(self._axes)}",
            fix="use one of them, or declare the axis",
        )

    def emit(
        self,
        kernel: Kernel | IndexedKernel | Selected,
        /,
        *args: Any,
        fields: Mapping[str, IntLike] | None = None,
        **kwargs: Any,
    ) -> Handle:
        """`emit` under the constraint of the space: work for which it does not hold is not
        there."""
        where = self._space.where
        if where is None:
            return emit(kernel, *args, fields=fields, **kwargs)
        tracer = current("emit(...)")
        named = {name: _unread(value) for name, value in kwargs.items()}
        if isinstance(fields, Mapping):  # what else it may be, emit refuses
            fields = {name: _unread(value) for name, value in fields.items()}
        with tracer.apart(), when(where(**self._indices(tracer, where))):
            return complete(emit(kernel, *map(_unread, args), fields=fields, **named))

    def _indices(self, tracer: Tracer, where: Callable[..., BoolLike]) -> dict[str, SymInt]:
        """The variables of the loops that a constraint names."""
        found: dict[str, SymInt] = {}
        for name in inspect.signature(where).parameters:
            loops = [loop for loop in tracer.loops if loop.axis is self._axes[name].key]
            if not loops:
                raise _error(
                    f"emit(...) outside a loop over axis {name}",
                    f"the constraint of space {self._space.name} asks for its index",
                    f"write it inside `for i in P(s.{name})`",
                )
            found[name] = loops[-1].item
        return found


def _unread(value: Any) -> Any:
    """An element of a tensor that is read only if the constraint holds, and again behind it."""
    return value.unread() if isinstance(value, Element) else value


def _seen(tracer: Tracer, name: str, spec: AxisSpec, values: Mapping[str, object]) -> SpaceAxis:
    end = as_symint(spec.end) if isinstance(spec.end, int) else None
    if isinstance(spec.end, str):
        end = _bound_end(tracer, name, spec.end, values[spec.end])
    size = as_symint(spec.tile) if isinstance(spec.tile, int) else None
    return SpaceAxis(name, spec, end, size)


def _bound_end(tracer: Tracer, axis: str, name: str, value: object) -> SymInt:
    """Where an axis ends that ends at an input."""
    match value:
        case AxisParam(axis=Dense() | DenseDyn()):
            return extent_of(tracer, value, None)
        case Dense() | DenseDyn():
            return as_symint(value.extent)
        case _ if is_integer(value):
            return as_symint(value)
        case _:
            raise _error(
                f"axis {axis} ends at {name}, which is {_WORDS.get(type(value)) or repr(value)}",
                "an axis ends at an integer",
                f"pass a number of elements: {name}=8",
            )


def _check_axes(space: object, others: Mapping[str, object], axes: Mapping[str, object]) -> None:
    """A space has a name and axes, which can be asked for by theirs."""
    wrong = {n: s for n, s in axes.items() if not isinstance(s, AxisSpec)}
    shown = "".join(f" with {name}={spec!r}" for name, spec in list(wrong.items())[:1])
    if wrong or not axes or not isinstance(space, str) or not space.isidentifier():
        raise _error(
            f"space {space!r}{shown}",
            "a space has a name and axes",
            'write Space("decode", batch=axis(0, "batch_size"), head=axis(0, 8))',
        )
    named = [*axes, *(name for name, value in others.items() if isinstance(value, AxisSpec))]
    for name in named:
        if name in _TAKEN or name.startswith("_") or not name.isidentifier() or iskeyword(name):
            raise _error(
                f"space {space!r} with an axis {name!r}",
                "generators ask for an axis as an attribute, s.batch, beside s.emit, and `where` is"
                " the constraint",
                "give the axis another name",
            )


def _check_where(space: Space, where: object) -> None:
    """A constraint is a function of indices."""
    parameters = _parameters(where)
    fits = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if parameters is None:
        raise _error(
            f"where={where!r} of space {space.name}",
            "a constraint is a function of indices",
            f"write where=lambda {next(iter(space.axes))}: ...",
        )
    for parameter in parameters:
        if parameter.name not in space.axes or parameter.kind not in fits:
            raise _error(
                f"where={parameter} of space {space.name}",
                "its parameters are axes of the space",
                f"use some of {', '.join(space.axes)}",
            )


def _parameters(function: object) -> list[inspect.Parameter] | None:
    if not callable(function):
        return None
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of something that is not written in Python
        return None


def _error(what: str, why: str, fix: str) -> CompileError:
    return CompileError(Code.SPACE, what, loc=srcloc.here(), why=why, fix=fix)


_TAKEN = ("emit", "where")
_WORDS: dict[type, str] = {
    SymBool: "a truth value",
    SymFloat: "a floating-point number",
    ArrayParam: "an array",
    AxisParam: "an axis of another kind",
}
