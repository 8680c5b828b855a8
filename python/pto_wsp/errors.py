"""Every exception of the package, in one tree under `PtoError`.

An error says what happened, where in the user's file, why, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pto_wsp.error_codes import Code
    from pto_wsp.srcloc import SrcLoc


class PtoError(Exception):
    """Base of all errors raised by pto_wsp.

    `code` names the kind of mistake, which docs/errors.md explains; `message` says what happened,
    `loc` where in the user's source, `note` what else has to do with it, `why` gives the reason and
    `fix` what to change; `str(error)` shows all of them with the source line.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        loc: SrcLoc | None = None,
        why: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(code, message)  # what pickle calls the class with
        self.code = code
        self.message = message
        self.loc = loc
        self.note: str | None = None
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        parts = [f"[{self.code.value}] {self.message}"]
        if self.loc is not None:
            parts.append(self.loc.render())
        if self.note is not None:
            parts.append(f"  note: {self.note}")
        if self.why is not None:
            parts.append(f"  why: {self.why}")
        if self.fix is not None:
            parts.append(f"  fix: {self.fix}")
        return "\n".join(parts)


class CompileError(PtoError):
    """The program cannot be traced, checked or compiled."""


class MissingAttribute(CompileError, AttributeError):
    """Something in a workload has no such attribute, and `hasattr` says so."""


class TypeCheckError(CompileError):
    """Arguments do not fit a kernel or a tensor."""


class ScheduleError(CompileError):
    """A directive contradicts another or cannot be enforced on the target."""


class PlanError(PtoError):
    """Plan bytes are damaged, hostile or of another version. `offset` is the byte in the file."""

    def __init__(self, code: Code, message: str, *, offset: int | None = None) -> None:
        where = "" if offset is None else f" (at byte {offset})"
        super().__init__(code, message + where)
        self.offset = offset


class ExecutionError(PtoError):
    """A run could not start or could not go on."""


class SynchronizeTimeout(ExecutionError, TimeoutError):
    """`synchronize(timeout=...)` ran out of time; the run goes on."""


class OutOfPages(ExecutionError, MemoryError):
    """A cache has too few free pages for all that was asked for; nobody got one."""


class KernelError(ExecutionError):
    """A kernel failed. Names the kernel, the loop indices and the call's line."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        kernel: str = "",
        indices: tuple[int, ...] = (),
        loc: SrcLoc | None = None,
        why: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(code, message, loc=loc, why=why, fix=fix)
        self.kernel = kernel
        self.indices = indices


@dataclass(frozen=True, slots=True)
class RaceTask:
    """One of two tasks that conflict; `region` is what it touches, `note` when and where it ran, if
    that is known."""

    kernel: str
    indices: tuple[int, ...]
    region: str = ""
    loc: SrcLoc | None = None
    note: str = ""

    def __str__(self) -> str:
        call = f"{self.kernel}[{', '.join(map(str, self.indices))}]"
        loc = self.loc
        inside = "" if loc is None or loc.inside is None else f" {loc.inside}"
        where = "" if loc is None else f" ({loc.file}:{loc.line}{inside})"
        return " ".join(part for part in (f"{call}{where}", self.region, self.note) if part)


@dataclass(frozen=True, slots=True)
class RacePair:
    """Two tasks of which the second has to wait for the first, and why."""

    why: str
    first: RaceTask
    second: RaceTask

    def __str__(self) -> str:
        return f"{self.first}, then {self.second}: {self.why}"


class RaceError(ExecutionError):
    """Tasks conflict and nothing orders them: `pairs` are the first of `total`. Or a kernel touches
    what it does not declare; then there are none."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        pairs: tuple[RacePair, ...] = (),
        total: int = 0,
        loc: SrcLoc | None = None,
        why: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(code, message, loc=loc, why=why, fix=fix)
        self.pairs = pairs
        self.total = total


class DeadlockError(ExecutionError):
    """Nothing can run any more. The message lists who waits for what."""


class WindowOverflow(ExecutionError):
    """The task window was full and its mode is ABORT."""


class ChannelError(ExecutionError):
    """Something is wrong with a channel."""


class ChannelClosed(ChannelError):
    """The channel was closed."""


class ChannelFull(ChannelError):
    """The channel has no free slot."""
