"""Where tracing stands: the active trace, and which loops are open.

The trace is a context variable, so threads and tasks of an event loop trace independently.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from pto_wsp.frontend.bounds import Place
from pto_wsp.srcloc import SrcLoc


@dataclass(eq=False, slots=True)
class Scope:
    """A stretch of the traced function in which a symbolic value means something: the whole
    function, or one P loop. Compared by identity, since names repeat."""

    kind: str
    name: str
    loc: SrcLoc | None
    is_open: bool = True


class ActiveTrace(Protocol):
    """What scalars and tensors need to know of the trace they are used in."""

    @property
    def scope(self) -> Scope:
        """The scope of the whole function."""
        ...

    def load(self, region: Any, loc: SrcLoc | None) -> Any:
        """The value of one element, read at this place."""
        ...

    def parts(self, paged: Any) -> tuple[Any, Any]:
        """The pool and the table of a paged tensor, under their names."""
        ...

    def frozen(self, value: Any, loc: SrcLoc | None) -> Any:
        """An integer as it is here, whatever later happens to the slots that it reads."""
        ...

    def alloc(self, tensor: Any, shape: Any) -> Scope:
        """Declare a temporary and make it at this place; the scope in which it exists."""
        ...

    def place(self) -> Place:
        """What is known at this place about loops and symbols."""
        ...

    def expect(self, tensor: str, extents: tuple[int | None, ...], loc: SrcLoc | None) -> None:
        """Whatever `execute` binds to that name has to have these extents; None: any."""
        ...

    def tensor_name(self, tensor: Any) -> str:
        """Declare a tensor under the name by which `execute` binds it."""
        ...


active: ContextVar[ActiveTrace | None] = ContextVar("pto_wsp_active_trace", default=None)
