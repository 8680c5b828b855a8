"""What a user sees of races."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.backends.reference.region import DimRange, Region
from pto_wsp.backends.reference.verify.oracle import Conflict
from pto_wsp.backends.reference.verify.record import Record
from pto_wsp.backends.reference.walk import Task, call_text
from pto_wsp.error_codes import Code
from pto_wsp.errors import RaceError, RacePair, RaceTask
from pto_wsp.plan import Plan, Section, Tensor

MOST_PAIRS = 100


class Pairs:
    """Collects pairs: the first hundred in full, and how many there are."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.found: list[RacePair] = []
        self.total = 0

    def add(
        self,
        first: int,
        second: int,
        conflict: Conflict | None,
        reason: str = "",
        detail: Callable[[], tuple[str, str]] = lambda: ("", ""),
    ) -> None:
        """Nodes that conflict, or that `reason` orders."""
        self.total += 1
        if self.total > MOST_PAIRS:
            return
        parts = (None, None) if conflict is None else (conflict.first, conflict.second)
        why = reason if conflict is None else conflict.hazard.value
        notes = detail()
        tasks = [self._task(n, k, d) for n, k, d in zip((first, second), parts, notes, strict=True)]
        self.found.append(RacePair(why, tasks[0], tasks[1]))

    def error(self, what: str, why: str, fix: str) -> RaceError:
        count = "1 pair" if self.total == 1 else f"{self.total} pairs"
        lines = [f"{count} of tasks {what}", *(f"  {pair}" for pair in self.found)]
        if self.total > len(self.found):
            lines.append(f"  and {self.total - len(self.found)} more")
        loc = self.found[0].second.loc
        return RaceError(
            Code.RACE,
            "\n".join(lines),
            pairs=tuple(self.found),
            total=self.total,
            loc=loc,
            why=why,
            fix=fix,
        )

    def _task(self, n: int, part: int | None, note: str) -> RaceTask:
        plan, node = self._record.bound.plan, self._record.nodes[n]
        region = "" if part is None else region_text(plan, node.regions[part])
        loc = plan.loc(Section.SITE, node.site)
        return RaceTask(plan.site_name(node.site), node.indices, region, loc, note)


def declaration_error(plan: Plan, task: Task, what: str, fix: str) -> RaceError:
    call = call_text(plan.kernel_names[task.kernel], task.indices)
    return RaceError(
        Code.DECLARATION,
        f"kernel {call} {what}",
        loc=plan.loc(Section.SITE, task.site),
        why="tasks are ordered by what their parameters say that they touch",
        fix=fix,
    )


def region_text(plan: Plan, region: Region) -> str:
    """A region as one would write it."""
    name = plan.string(plan.records(Tensor)[region.tensor].name)
    return f"{name}[{', '.join(_dim_text(dim) for dim in region.dims)}]" if region.dims else name


def _dim_text(dim: DimRange) -> str:
    if dim.dropped:
        return str(dim.start)
    end = dim.start + (dim.extent - 1) * dim.step + 1 if dim.extent else dim.start
    return f"{dim.start}:{end}" + (f":{dim.step}" if dim.step != 1 and dim.extent > 1 else "")
