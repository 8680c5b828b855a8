"""Loops whose iterations run one after the other, since nothing finer is known.

A GPU infers no dependences while it runs. Where regions of two calls may meet at any distance along
a parallel loop, its iterations are ordered as those of `P.seq` are: that is always right, and the
program says so in `explain()`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pto_wsp.backends.cuda.nest import Block, Branch, Item, Loop, Phases
from pto_wsp.backends.cuda.sync import Open, Synchronisation
from pto_wsp.plan import Axis, Plan


@dataclass(frozen=True, slots=True)
class OrderedLoop:
    """A parallel loop that was ordered, and the calls that made it so."""

    axis: str
    source: str
    sink: str
    site: int  # of the sink

    def __str__(self) -> str:
        return (
            f"regions of {self.source!r} and {self.sink!r} may meet at any distance along it; "
            "P.seq says the same, and Deps.explicit() promises that they do not"
        )


def synchronise(
    plan: Plan, nest: Block, *, rides: bool, expanded: bool = False
) -> tuple[Block, Synchronisation, tuple[OrderedLoop, ...]]:
    """The nest with as many of its loops ordered as have to be, and who waits for whom in it."""
    ordered: list[OrderedLoop] = []
    while True:
        try:
            sync = Synchronisation(plan, nest, rides=rides, expanded=expanded)
            return nest, sync, tuple(ordered)
        except Open as found:
            name = plan.string(plan.records(Axis)[found.loop.axis].name)
            names = (plan.site_name(found.source), plan.site_name(found.sink))
            ordered.append(OrderedLoop(name, *names, found.sink))
            nest = _with_ordered(nest, found.loop.pc)


def _with_ordered(block: Block, pc: int) -> Block:
    def rebuilt(item: Item) -> Item:
        match item:
            case Loop():
                ordered = item.ordered or item.pc == pc
                return replace(item, ordered=ordered, body=_with_ordered(item.body, pc))
            case Branch():
                then, other = (_with_ordered(side, pc) for side in (item.then, item.other))
                return replace(item, then=then, other=other)
            case Phases():
                children = tuple(_with_ordered(child, pc) for child in item.children)
                return replace(item, children=children)
            case _:
                return item

    return tuple(map(rebuilt, block))
