"""The kernel that is being traced: its statements so far, and which loops and conditions are open.

The trace is a context variable, so threads trace independently.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any
from weakref import ref as weak

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_ir import Attribute, Op, Statement, Type, Value, infer
from pto_wsp.srcloc import SrcLoc

active: ContextVar[Trace | None] = ContextVar("pto_wsp_tile_trace", default=None)


@dataclass(eq=False, slots=True)
class Frame:
    """A stretch of the kernel in which values mean something: all of it, one loop, one branch."""

    kind: str
    loc: SrcLoc | None
    statements: list[Statement] = field(default_factory=list[Statement])
    is_open: bool = True


class Trace:
    """A kernel in the making."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name = name
        self._code = code
        self.frames = [Frame("kernel", None)]
        self.carries: list[weak[object]] = []
        self.forget: list[
            Callable[[], None]
        ] = []  # what is known of memory, before others write it
        self.names: dict[int, str] = {}
        self._named_at: tuple[CodeType, int] | None = None
        self._last_named = -1
        self._next = 0
        self.last_when: object = None  # `otherwise` belongs to it
        self._asked = 0
        self._unused: dict[int, tuple[str, SrcLoc | None]] = {}  # loops and conditions not begun

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def loc(self) -> SrcLoc | None:
        """The user's line; kernels of this package count as the user's own."""
        return srcloc.of_frame(self._user_frame())

    def _user_frame(self) -> FrameType | None:
        frame = inspect.currentframe()
        while frame is not None and srcloc.is_ours(frame) and frame.f_code is not self._code:
            frame = frame.f_back
        return frame

    def value(self, of_type: Type, name: str = "") -> Value:
        """A value with a number of its own."""
        self._next += 1
        return Value(self._next - 1, of_type, name)

    def emit(
        self,
        op: Op,
        operands: Sequence[Value],
        attributes: Sequence[tuple[str, Attribute]] = (),
    ) -> tuple[Value, ...]:
        """Appends a statement; its results."""
        frame = self._user_frame()
        loc = srcloc.of_frame(frame)
        try:
            types = infer(op, [operand.type for operand in operands], dict(attributes))
        except CompileError as error:
            error.loc = loc
            raise
        results = tuple(self.value(each) for each in types)
        statement = Statement(op, results, tuple(operands), tuple(attributes), (), loc)
        self.frame.statements.append(statement)
        if frame is not None and results:
            self._name(frame, results[0])
        return results

    def _name(self, frame: FrameType, value: Value) -> None:
        """`m = pto.row_max(x)` names what the call makes last."""
        name = _targets(frame.f_code).get(frame.f_lasti)
        if name is None:
            return
        place = frame.f_code, frame.f_lasti
        if place == self._named_at:
            self.names.pop(self._last_named, None)
        self.names[value.number] = name
        self._named_at, self._last_named = place, value.number

    def rename(self, value: Value, name: str) -> None:
        """A value that has a name of its own, whatever the result is called."""
        self.names[value.number] = name
        self._named_at = None

    def target(self) -> str | None:
        """The name that the user's current instruction stores into: of a loop its variable."""
        frame = self._user_frame()
        return None if frame is None else _targets(frame.f_code).get(frame.f_lasti)

    def open(self, kind: str) -> Frame:
        frame = Frame(kind, self.loc())
        self.frames.append(frame)
        self.forget_memory()
        return frame

    def close(self, frame: Frame) -> None:
        if self.frame is not frame:
            raise self.left_early(self.frame)
        self.frames.pop()
        frame.is_open = False
        self.forget_memory()

    def forget_memory(self) -> None:
        """A block runs several times or not at all: what was loaded before it, or in it, may not
        be what a parameter holds."""
        for each in self.forget:
            each()

    def expect_use(self, form: str) -> int:
        """A loop or condition that has to begin before the kernel ends; what `used` calls it."""
        self._asked += 1
        self._unused[self._asked] = form, self.loc()
        return self._asked

    def used(self, ticket: int) -> None:
        self._unused.pop(ticket, None)

    def check_ended(self) -> None:
        """Whether all blocks were entered, and left at their ends."""
        if len(self.frames) > 1:
            raise self.left_early(self.frame)
        for form, loc in self._unused.values():
            raise CompileError(
                Code.UNUSED,
                f"{form} of kernel {self.name} is not used",
                loc=loc,
                why="nothing happens until its body begins",
                fix=f"write `for i in {form}:`" if "range" in form else f"write `with {form}:`",
            )

    def left_early(self, frame: Frame) -> CompileError:
        return CompileError(
            Code.LOOP_LEFT_EARLY,
            f"a {frame.kind} of kernel {self.name} is not left at its end",
            loc=frame.loc,
            why="it is traced once, from its first to its last line",
            fix="remove break and return; with pto.when(...) leaves statements out",
        )

    def error(
        self, code: Code, message: str, why: str, fix: str, kind: type[CompileError] = CompileError
    ) -> CompileError:
        return kind(code, message, loc=self.loc(), why=why, fix=fix)


def current(what: str) -> Trace:
    """The trace that a pto function belongs to."""
    trace = active.get()
    if trace is not None:
        return trace
    raise CompileError(
        Code.TILE_OUTSIDE,
        f"{what} outside a tile kernel",
        loc=srcloc.here(),
        why="tile operations are traced while a kernel with tile code is",
        fix='write it in a function with @kernel, or @kernel(body="tile")',
    )


@functools.lru_cache(maxsize=64)
def _targets(code: CodeType) -> dict[int, str]:
    """The name that the result of an instruction is stored in, by the instruction's offset."""
    found: dict[int, str] = {}
    before: int | None = None
    for instruction in dis.get_instructions(code):
        if before is not None and instruction.opname in _STORES:
            stored: Any = instruction.argval
            if instruction.opname == "STORE_FAST_LOAD_FAST":
                stored = stored[0]
            # While a Python function runs, the caller stands at the end of its call.
            offsets = range(before, instruction.offset, 2)
            found |= {offset: stored for offset in offsets if isinstance(stored, str)}
        before = instruction.offset
    return found


_STORES = frozenset(
    ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_LOAD_FAST")
)
