"""Spaces: named axes, and a generator that emits a descriptor for each piece of work in them.

A descriptor is what a task record is, so a generator is a workload: it is traced once, its axes are
loops that a schedule can name, and `emit` is a kernel call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import FunctionType
from typing import Any, TypeAlias, cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axes import DenseDyn
from pto_wsp.frontend.axis_params import ArrayParam, AxisParam, LoopAxis
from pto_wsp.frontend.conditions import when
from pto_wsp.frontend.directives import Schedule
from pto_wsp.frontend.emission import complete, emit
from pto_wsp.frontend.handles import Handle
from pto_wsp.frontend.kernels import IndexedKernel, Kernel
from pto_wsp.frontend.reductions import reduce_max, reduce_sum, search
from pto_wsp.frontend.scalar_expr import BoolLike, IntLike, SymInt, as_symint, atom
from pto_wsp.frontend.tiers import Selected
from pto_wsp.frontend.tile_vars import tile_count
from pto_wsp.frontend.trace import Tracer, current
from pto_wsp.frontend.workloads import Workload, WorkloadFunction, workload


class Late(Enum):
    """What an axis leaves to the generator."""

    DYNAMIC = "DYNAMIC"  # where it ends
    AUTO = "AUTO"  # the size of its tiles

    def __repr__(self) -> str:
        return self.value


class Padding(Enum):
    PAD_LAST = "PAD_LAST"  # the last tile is as large as the others

    def __repr__(self) -> str:
        return self.value


DYNAMIC, AUTO, PAD_LAST = Late.DYNAMIC, Late.AUTO, Padding.PAD_LAST
TileSize: TypeAlias = int | Late | tuple[int | Late, Padding]


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """An axis of a space: from `start` up to `end`, in tiles of `tile` elements if it has any."""

    start: int
    end: int | str | Late
    tile: int | Late | None = None
    padded: bool = False


def axis(start: int, end: int | str | Late, *, tile: TileSize | None = None) -> AxisSpec:
    """`axis(0, 8)`, `axis(0, "batch_size")` for an end that is bound at launch, `axis(0, DYNAMIC)`
    for one that the generator knows. `tile=256`, `tile=(256, PAD_LAST)`, or `tile=AUTO`: then the
    generator fits the size to the work."""
    size, padding = tile if isinstance(tile, tuple) else (tile, None)
    good_end = end is DYNAMIC or (isinstance(end, str) and end.isidentifier()) or _is_int(end)
    good_size = size is None or size is AUTO or (_is_int(size) and cast(int, size) >= 1)
    good_padding = padding in (None, PAD_LAST) and (padding is None or size is not None)
    if _is_int(start) and start >= 0 and good_end and good_size and good_padding:
        return AxisSpec(start, end, size, padded=padding is PAD_LAST)
    raise CompileError(
        Code.SPACE,
        f"axis({start!r}, {end!r}, tile={tile!r})",
        loc=srcloc.here(),
        why="an axis begins at 0 or above, ends at a number, at the name of an input or at DYNAMIC,"
        " and has tiles of at least 1 element, AUTO or none",
        fix='write axis(0, 8), axis(0, "batch_size") or axis(0, DYNAMIC, tile=AUTO)',
    )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Space:
    """Named axes, a constraint on their indices, and a generator of descriptors.

    `where` is asked for each descriptor: it names axes as its parameters, and work for which it
    does not hold is not there.
    """

    def __init__(
        self, name: str, *, where: Callable[..., BoolLike] | None = None, **axes: AxisSpec
    ) -> None:
        self.name = name
        # Copies, so that no two axes are one object.
        self.axes = {n: replace(s) if isinstance(s, AxisSpec) else s for n, s in axes.items()}  # pyright: ignore[reportUnnecessaryIsInstance]
        self.where = where
        self.generates: Generator | None = None
        wrong = [n for n, spec in axes.items() if not isinstance(cast(object, spec), AxisSpec)]
        if wrong or not axes or not name.isidentifier():
            raise _error(
                f"space {name!r}" + (f" with {wrong[0]}={axes[wrong[0]]!r}" if wrong else ""),
                "a space has a name and axes",
                'write Space("decode", batch=axis(0, "batch_size"), head=axis(0, 8))',
            )
        unknown = [] if where is None else [n for n in _names(where) if n not in axes]
        if unknown:
            raise _error(
                f"where={unknown[0]} of space {name}",
                "its parameters are axes of the space",
                f"use some of {', '.join(axes)}",
            )

    def __repr__(self) -> str:
        return f"<space {self.name}({', '.join(self.axes)})>"

    def generator(self, schedule: Schedule | Callable[..., None] | None = None) -> Any:
        """`@space.generator` or `@space.generator(schedule)` on a function `(s, inputs ...)`: `s`
        holds the axes as attributes, and `s.emit(kernel, ...)` emits a descriptor."""
        if isinstance(schedule, FunctionType):
            return self._generator(schedule, None)
        declared = cast("Schedule | None", schedule)
        return functools.partial(self._generator, schedule=declared)

    def _generator(self, function: FunctionType, schedule: Schedule | None) -> Generator:
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
        ends = {
            name: DenseDyn(value) if _is_int(value) else value
            for name, value in kwargs.items()
            if name in self.ends
        }
        made = super().__call__(*args, **{**kwargs, **ends})
        return made if self.schedule is None else made.under(self.schedule)


class SpaceAxis(LoopAxis):
    """An axis inside a generator. `P(s.head)` loops over it; `s.kv(end)` is the axis up to an end
    that the generator knows, and `s.kv.fit(...)` chooses the size of AUTO tiles."""

    def __init__(self, name: str, spec: AxisSpec, end: SymInt | None, size: SymInt | None) -> None:
        self.name = name
        self.padded = spec.padded
        self.key = self.spec = spec
        self._end = end
        self._size = size

    def __call__(self, end: IntLike) -> SpaceAxis:
        if self.spec.end is not DYNAMIC:
            raise _error(
                f"axis {self.name} is given an end",
                f"it ends at {self.spec.end}",
                "loop over it as it is, or declare it with axis(0, DYNAMIC)",
            )
        return SpaceAxis(self.name, self.spec, as_symint(end), self._size)

    @property
    def first(self) -> int:
        return self.spec.start

    @property
    def end(self) -> SymInt:
        if self._end is not None:
            return self._end
        raise _error(
            f"axis {self.name} has no end",
            "it is DYNAMIC: the generator says where it ends",
            f"write {self.name}(end)",
        )

    @property
    def tile(self) -> SymInt | None:
        """Elements of a tile; None if there are no tiles."""
        if self.spec.tile is AUTO and self._size is None:
            raise _error(
                f"axis {self.name} has no size of tiles",
                "it is AUTO: the generator fits it to the work",
                f"call s.{self.name}.fit(blocks, lengths) before the loops",
            )
        return self._size

    def fit(self, blocks: IntLike, lengths: ArrayParam, count: IntLike, least: int = 256) -> SymInt:
        """Chooses AUTO tiles: the smallest size, but not below `least`, that cuts the first `count`
        of the lengths into at most `blocks` tiles in all. It is searched for once a run."""
        if self.spec.tile is not AUTO:
            raise _error(
                f"axis {self.name} has tiles of {self.spec.tile}",
                "only AUTO tiles are fitted",
                "declare it with tile=AUTO",
            )
        if current(f"{self.name}.fit(...)").loops:
            raise _error(
                f"{self.name}.fit(...) inside a loop",
                "there is one size of tiles in a run",
                "call it before the loops",
            )
        longest = reduce_max(count, lambda i: lengths[i])

        def few(size: SymInt) -> BoolLike:
            return reduce_sum(count, lambda i: tile_count(lengths[i], size)) <= as_symint(blocks)

        self._size = search(least, longest, few)
        return self._size

    def __repr__(self) -> str:
        return f"<axis {self.name} of a space>"


class SpaceView:
    """What a generator sees of its space: the axes as attributes, and `emit`."""

    def __init__(self, space: Space, values: Mapping[str, object]) -> None:
        self._space = space
        tracer = current(f"space {space.name}")
        self._axes = {n: _seen(tracer, n, spec, values) for n, spec in space.axes.items()}

    def __getattr__(self, name: str) -> SpaceAxis:
        found = self._axes.get(name)
        if found is not None:
            return found
        raise AttributeError(f"space {self._space.name} has the axes {', '.join(self._axes)}")

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
        with tracer.apart(), when(where(**self._indices(tracer, where))):
            return complete(emit(kernel, *args, fields=fields, **kwargs))

    def _indices(self, tracer: Tracer, where: Callable[..., BoolLike]) -> dict[str, SymInt]:
        """The variables of the loops that a constraint names."""
        found: dict[str, SymInt] = {}
        for name in _names(where):
            loops = [loop for loop in tracer.loops if loop.axis is self._axes[name].key]
            if not loops:
                raise _error(
                    f"emit(...) outside a loop over axis {name}",
                    f"the constraint of space {self._space.name} asks for its index",
                    f"write it inside `for i in P(s.{name})`",
                )
            found[name] = loops[-1].variable
        return found


def _seen(tracer: Tracer, name: str, spec: AxisSpec, values: Mapping[str, object]) -> SpaceAxis:
    end = as_symint(spec.end) if isinstance(spec.end, int) else None
    if isinstance(spec.end, str):
        bound = values[spec.end]
        known = atom(ir.SymbolRef(spec.end), tracer.scope)
        end = known if isinstance(bound, AxisParam) else as_symint(bound)
    size = as_symint(spec.tile) if isinstance(spec.tile, int) else None
    return SpaceAxis(name, spec, end, size)


def _names(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _error(what: str, why: str, fix: str) -> CompileError:
    return CompileError(Code.SPACE, what, loc=srcloc.here(), why=why, fix=fix)
