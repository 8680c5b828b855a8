"""What is open while a workload is traced: bodies, loops, chains of conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pto_wsp import ir
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import SymInt, atom

if TYPE_CHECKING:
    from pto_wsp.errors import CompileError
    from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Arm:
    """One branch of a chain of conditions: what its condition read, the condition, the tasks. The
    last one may have no condition."""

    reads: ir.Body
    condition: ir.Expr | None
    body: ir.Body
    loc: SrcLoc | None


@dataclass(eq=False, slots=True)
class Chain:
    """Conditions that follow each other directly: the first that holds is taken."""

    start: int  # place of its statement in the body
    end: int = 0
    arms: list[Arm] = field(default_factory=list[Arm])

    def fold(self) -> list[ir.Stmt]:
        """The chain as a statement, or nothing if no branch has tasks."""
        rest: ir.Body = ()
        for arm in reversed(self.arms):
            if arm.condition is None:
                rest = arm.body
            elif arm.body:
                rest = (*arm.reads, ir.Cond(arm.condition, arm.body, rest, arm.loc))
            elif rest:
                rest = (*arm.reads, ir.Cond(ir.Not(arm.condition), rest, (), arm.loc))
        return list(rest)


@dataclass(eq=False, slots=True)
class OpenBlock:
    """A body that is being traced: of the workload, of a loop, or of a P.when."""

    scope: Scope
    body: list[ir.Stmt] = field(default_factory=list[ir.Stmt])
    # Values that were read here: hidden slots by name, with the scopes in which they may be used.
    loads: dict[str, Scope] = field(default_factory=dict[str, Scope])
    slots: set[str] = field(default_factory=set[str])  # set here for the first time
    gates: list[str] = field(default_factory=list[str])  # calls that all behind them wait for
    chain: Chain | None = None  # the last P.when of this body

    def close(self) -> None:
        for scope in (self.scope, *self.loads.values()):
            scope.is_open = False


@dataclass(eq=False, slots=True)
class OpenLoop(OpenBlock):
    """A P loop whose body is being traced."""

    head: ir.Loop | ir.While | ir.Consume | None = None  # without its body
    axis: object = None  # the user's axis object, to which ragged and sparse axes refer
    tile: SymInt | None = None  # what stands for its variable, if that has bounds

    @property
    def var(self) -> str:
        assert self.head is not None
        return self.head.var

    @property
    def variable(self) -> SymInt:
        return atom(ir.LoopVar(self.var), self.scope)

    @property
    def item(self) -> SymInt:
        """What a `for` statement gets: the variable, or the tile of that number."""
        return self.variable if self.tile is None else self.tile

    @property
    def column_axis(self) -> str | None:
        """The axis by which descriptors and schedules know the loop; messages have none."""
        return None if self.head is None or isinstance(self.head, ir.Consume) else self.head.axis

    @property
    def column(self) -> SymInt:
        return atom(ir.Column(self.var), self.scope)


@dataclass(eq=False, slots=True)
class Pending:
    """Something that has no effect unless it is used: a P(...) or a kernel[...]."""

    what: str
    fix: str
    loc: SrcLoc | None
    used: bool = False
    error: CompileError | None = None  # raised in place of the usual one
