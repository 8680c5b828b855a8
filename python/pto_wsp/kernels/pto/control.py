"""Loops, conditions, and the values that they change.

A loop is traced once: when its body begins, every cell of every `carry` that is alive becomes a
parameter of the body; when it ends, those that changed are carried and the others are what they
were. A branch is traced in the same way, without parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import ref as weak

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.indexing import as_i64
from pto_wsp.kernels.pto.trace import Frame, Trace, current
from pto_wsp.kernels.pto.values import (
    ScalarValue,
    TracedValue,
    as_value,
    constant,
    is_number,
    plain,
    wrap,
)
from pto_wsp.kernels.tile_ir import Block, Op, ScalarType, Statement, Value, join, type_text
from pto_wsp.kernels.tile_ir.ops import INTEGERS
from pto_wsp.kernels.tile_ir.rebuild import branch_types, rebuild, replaced, widened_loop

I64 = ScalarType(DType.I64)
_NUMBERS = {bool: DType.BOOL, int: DType.I64, float: DType.F32}


class Carry:
    """Named values that loops and conditions may change: `s = pto.carry(m=..., acc=...)`, then
    `s.m` and `s.m = ...`. A value keeps its dtype and shape."""

    def __init__(self, cells: dict[str, TracedValue], trace: Trace, frame: Frame) -> None:
        object.__setattr__(self, "_cells", cells)
        object.__setattr__(self, "_trace", trace)
        object.__setattr__(self, "_frame", frame)

    def __getattr__(self, name: str) -> Any:
        cells: dict[str, TracedValue] = object.__getattribute__(self, "_cells")
        if name in cells:
            return cells[name]
        raise _no_cell(name, cells)

    def __setattr__(self, name: str, value: Any) -> None:
        cells: dict[str, TracedValue] = object.__getattribute__(self, "_cells")
        if name not in cells:
            raise _no_cell(name, cells)
        what = f"an assignment of {name}"
        before = cells[name].traced(what)
        given = constant(value, before.type.dtype) if is_number(value) else as_value(value, what)
        after = given.traced(what)
        if join(before.type, after.type) is None:
            raise current(what).error(
                Code.TILE_CARRY,
                f"{name} becomes {type_text(after.type)}, it is {type_text(before.type)}",
                "a carried value keeps its dtype and shape",
                "cast, slice or reshape it, or begin with another value",
                TypeCheckError,
            )
        cells[name] = given


def carry(**values: Any) -> Carry:
    """Values that loops and conditions may change."""
    trace = current("pto.carry")
    cells: dict[str, TracedValue] = {}
    for name, value in values.items():
        number = plain(value)
        if isinstance(number, int | float):
            cells[name] = constant(number, _NUMBERS[type(number)])
        else:
            cells[name] = as_value(value, f"a carried value {name}")
            cells[name].traced(f"a carried value {name}")
    made = Carry(cells, trace, trace.frame)
    trace.carries.append(weak(made))
    return made


def _no_cell(name: str, cells: dict[str, TracedValue]) -> Exception:
    return current("pto.carry").error(
        Code.TILE_CARRY,
        f"no carried value {name}",
        f"there are {', '.join(cells) or 'none'}",
        f"name it where they begin: pto.carry({name}=...)",
    )


@dataclass(slots=True)
class _Cell:
    """A carried value, as it was when a block began."""

    cells: dict[str, TracedValue]
    name: str
    before: TracedValue
    inside: TracedValue

    @property
    def now(self) -> TracedValue:
        return self.cells[self.name]

    @property
    def changed(self) -> bool:
        return self.now is not self.inside

    def put(self, value: TracedValue) -> None:
        self.cells[self.name] = value


def _alive(trace: Trace) -> Iterator[_Cell]:
    for each in trace.carries:
        found = each()
        if found is None:
            continue
        cells: dict[str, TracedValue] = object.__getattribute__(found, "_cells")
        frame: Frame = object.__getattribute__(found, "_frame")
        if frame.is_open:
            yield from (_Cell(cells, name, value, value) for name, value in list(cells.items()))


def for_range(start: Any, stop: Any = None, step: Any = 1) -> Iterator[ScalarValue]:
    """`for i in pto.for_range(n)`: a loop of the kernel, with bounds that may be known only when it
    runs. Its body is traced once; what it changes is in pto.carry(...)."""
    trace = current("pto.for_range")
    if stop is None:
        start, stop = 0, start
    number = plain(step)
    if isinstance(number, int) and number < 1:
        raise trace.error(
            Code.TILE_ARGUMENT,
            f"for_range with a step of {number}",
            "a loop goes up",
            "use a step of at least 1, and count down inside",
            TypeCheckError,
        )
    return _Loop(trace, [_bound(each) for each in (start, stop, step)])


def _bound(value: object) -> ScalarValue:
    number = plain(value)
    if isinstance(number, int) and not isinstance(number, bool):
        return constant(number, DType.I64)
    if isinstance(value, ScalarValue) and value.dtype in INTEGERS:
        value.traced("for_range")
        return as_i64(value)
    raise current("pto.for_range").error(
        Code.TILE_ARGUMENT,
        f"for_range with {type(value).__name__}",
        "its bounds are integers",
        "use numbers, integer scalars, x.shape[0] or pto.cast(n, DType.I64)",
        TypeCheckError,
    )


class _Loop(Iterator[ScalarValue]):
    """Begins the body at the first step and ends it at the second."""

    def __init__(self, trace: Trace, bounds: list[ScalarValue]) -> None:
        self._trace = trace
        self._bounds = [bound.traced("for_range") for bound in bounds]
        self._frame: Frame | None = None
        self._index: Value | None = None
        self._cells: list[_Cell] = []
        self._params: list[Value] = []
        self._ticket = trace.expect_use("pto.for_range(...)")

    def __next__(self) -> ScalarValue:
        trace = self._trace
        if self._frame is not None and not self._frame.is_open:
            raise trace.error(
                Code.TILE_ARGUMENT,
                "a second loop over one for_range",
                "its body has been traced",
                "write `for i in pto.for_range(...):` for each loop",
            )
        if self._frame is not None:
            self._close(self._frame)
            raise StopIteration
        trace.used(self._ticket)
        cells = list(_alive(trace))
        self._frame = trace.open("loop")
        self._index = trace.value(I64)
        name = trace.target()
        if name is not None:
            trace.names[self._index.number] = name
        for cell in cells:
            param = trace.value(cell.before.traced("for_range").type, cell.name)
            cell.inside = wrap(trace, param)
            cell.put(cell.inside)
            self._cells.append(cell)
            self._params.append(param)
        return ScalarValue(trace, trace.frame, self._index)

    def _close(self, frame: Frame) -> None:
        trace = self._trace
        pairs = list(zip(self._cells, self._params, strict=True))
        changed = [(cell, param) for cell, param in pairs if cell.changed]
        yields = [cell.now.traced("for_range") for cell, _ in changed]
        trace.close(frame)
        stays = {
            param.number: cell.before.traced("for_range")
            for cell, param in pairs
            if not cell.changed
        }
        body = rebuild(frame.statements, dict(stays))
        given = [cell.before.traced("for_range") for cell, _ in changed]
        assert self._index is not None
        params = [self._index, *(param for _, param in changed)]
        block, misfits = widened_loop(given, params, body, replaced(yields, stays))
        assert not misfits  # assignments have seen to it
        results = [trace.value(param.type, param.name) for param in block.params[1:]]
        operands = (*self._bounds, *given)
        trace.frame.statements.append(
            Statement(Op.FOR, tuple(results), operands, (), (block,), frame.loc)
        )
        for cell, _ in pairs:
            cell.put(cell.before)
        for (cell, _), result in zip(changed, results, strict=True):
            cell.put(wrap(trace, result))


class _Branch:
    """`with pto.when(...)` or `with pto.otherwise()`."""

    def __init__(self, trace: Trace, form: str) -> None:
        self._trace = trace
        self._kind = "condition"
        self._frame: Frame | None = None
        self._cells: list[_Cell] = []
        self._ticket = trace.expect_use(form)

    def __enter__(self) -> None:
        self._trace.used(self._ticket)
        self._cells = self._begin()
        self._frame = self._trace.open(self._kind)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        frame = self._frame
        assert frame is not None
        if kind is not None:
            return
        values = {
            (id(cell.cells), cell.name): cell.now.traced(self._kind)
            for cell in self._cells
            if cell.changed
        }
        self._trace.close(frame)
        for cell in self._cells:
            cell.put(cell.before)
        self._end(frame, values)

    def _begin(self) -> list[_Cell]:
        return list(_alive(self._trace))

    def _end(self, frame: Frame, values: dict[tuple[int, str], Value]) -> None:
        raise AssertionError


class _When(_Branch):
    """The first branch; `otherwise` may follow directly."""

    def __init__(self, trace: Trace, condition: Value) -> None:
        super().__init__(trace, "pto.when(...)")
        self.condition = condition
        self.statement: Statement | None = None
        self.cells: list[_Cell] = []
        self.frame: Frame | None = None
        self.values: dict[tuple[int, str], Value] = {}

    def _end(self, frame: Frame, values: dict[tuple[int, str], Value]) -> None:
        self.cells, self.frame, self.values = self._cells, frame, values
        self.statement = self.put(Frame("condition", frame.loc), {})
        self._trace.last_when = self

    def put(self, other: Frame, values: dict[tuple[int, str], Value]) -> Statement:
        """Appends the statement, with the second branch as it is; the cells get its results."""
        trace, first = self._trace, self.frame
        assert first is not None
        changed = [
            cell for cell in self.cells if (id(cell.cells), cell.name) in self.values | values
        ]
        blocks: list[Block] = []
        for frame, found in ((first, self.values), (other, values)):
            yields = [
                found.get((id(cell.cells), cell.name)) or cell.before.traced("when")
                for cell in changed
            ]
            blocks.append(Block((), tuple(frame.statements), tuple(yields)))
        types = branch_types(blocks)
        results = [trace.value(each, cell.name) for each, cell in zip(types, changed, strict=True)]
        statement = Statement(
            Op.WHEN, tuple(results), (self.condition,), (), tuple(blocks), first.loc
        )
        trace.frame.statements.append(statement)
        for cell, result in zip(changed, results, strict=True):
            cell.put(wrap(trace, result))
        return statement


class _Otherwise(_Branch):
    def __init__(self, trace: Trace, when_before: _When) -> None:
        super().__init__(trace, "pto.otherwise()")
        self._when = when_before

    def _begin(self) -> list[_Cell]:
        removed = self._trace.frame.statements.pop()
        assert removed is self._when.statement
        first = self._when.frame
        assert first is not None
        for cell in self._when.cells:
            if cell.now is not cell.before:
                cell.now.withdraw(first)  # it was for one branch; now there are two
            cell.put(cell.before)
        return [_Cell(cell.cells, cell.name, cell.before, cell.before) for cell in self._when.cells]

    def _end(self, frame: Frame, values: dict[tuple[int, str], Value]) -> None:
        self._when.put(frame, values)


def when(condition: Any) -> _Branch:
    """`with pto.when(i > 0):` statements that run only if the condition holds when the kernel
    does. What they change is in pto.carry(...)."""
    trace = current("pto.when")
    truth = plain(condition)
    value = constant(truth, DType.BOOL) if isinstance(truth, bool) else condition
    if isinstance(value, ScalarValue) and value.dtype is DType.BOOL:
        return _When(trace, value.traced("when"))
    shown = type(condition).__name__
    if isinstance(condition, TracedValue):
        shown = type_text(condition.traced("when").type)
    raise trace.error(
        Code.TILE_ARGUMENT,
        f"when({shown})",
        "a condition is one truth value",
        "compare scalars, or choose element by element: pto.where(mask, a, b)",
        TypeCheckError,
    )


def otherwise() -> _Branch:
    """`with pto.otherwise():` directly behind `with pto.when(...)`: for the case that its condition
    does not hold."""
    trace = current("pto.otherwise")
    before = trace.last_when
    statements = trace.frame.statements
    if isinstance(before, _When) and statements and statements[-1] is before.statement:
        return _Otherwise(trace, before)
    raise trace.error(
        Code.OTHERWISE_ALONE,
        "pto.otherwise without pto.when",
        "it is for the case that the condition directly before it does not hold",
        "put it behind `with pto.when(...)`, with nothing in between",
    )
