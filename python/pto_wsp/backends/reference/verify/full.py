"""verify="full": a run on private copies of the memory, one task at a time, before the real one."""

from __future__ import annotations

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.verify.boxes import boxes_meet
from pto_wsp.backends.reference.verify.declarations import Declarations
from pto_wsp.backends.reference.verify.history import Hazard, History
from pto_wsp.backends.reference.verify.oracle import Conflict, Oracle
from pto_wsp.backends.reference.verify.order import Order
from pto_wsp.backends.reference.verify.private import private
from pto_wsp.backends.reference.verify.record import Node, Record, Recorder
from pto_wsp.backends.reference.verify.report import Pairs
from pto_wsp.backends.reference.verify.spaces import Key, Spaces, box
from pto_wsp.backends.reference.walk import Walk
from pto_wsp.kernels import LoadedKernel
from pto_wsp.plan import (
    NONE,
    Access,
    AccessMode,
    Channel,
    DepsPolicy,
    Directive,
    Plan,
    Tensor,
)
from pto_wsp.runtime.bindings import Bound

_PROMISES = {
    DepsPolicy.EXACT: "infer_tensor_map_exact() orders tasks by equal regions only, and no P.seq, "
    "sequential or after= orders these",
    DepsPolicy.EXPLICIT: "explicit() infers nothing, and no P.seq, sequential or after= orders "
    "these",
}
_SHARED_PAGES = "they name different tokens, which lie on the same page"
_PROCESSES = "they are of different processes, between which channels alone order tasks"


def verify_full(plan: Plan, kernels: tuple[LoadedKernel, ...], bindings: tuple[Bound, ...]) -> None:
    """RaceError if a kernel does what it does not declare, or if tasks that conflict may run at the
    same time under the plan's dependence policy."""
    bound = BoundPlan(plan, private(plan, bindings))
    policy = deps_policy(plan)
    # Complete policies order whatever conflicts, by definition; but they tell tokens of a paged
    # tensor apart by their numbers, and pages may be shared.
    wanted = policy in _PROMISES or _writes_pages(plan) or bool(plan.records(Channel))
    walk = Recorder(bound) if wanted else Walk(bound)
    declarations = Declarations(bound, kernels)
    for task in walk.tasks():
        declarations.run(task)
    if isinstance(walk, Recorder):
        check_order(walk.record, policy)


def deps_policy(plan: Plan) -> DepsPolicy:
    return DepsPolicy(plan.policy(Directive.DEPS) or DepsPolicy.AUTO)


def _writes_pages(plan: Plan) -> bool:
    tensors = plan.records(Tensor)
    accesses = plan.records(Access)
    return any(a.mode != AccessMode.IN and tensors[a.tensor].pool != NONE for a in accesses)


def check_order(record: Record, policy: DepsPolicy) -> None:
    """RaceError if the policy leaves tasks that conflict without order."""
    oracle = Oracle(record)
    order = Order(record)
    edges = _Edges(record, policy, oracle.spaces)
    pairs = Pairs(record)
    for n, node in enumerate(record.nodes):
        conflicts = oracle.conflicts(n)
        oracle.add(n)
        if not node.is_task:  # control waits for what it reads under every policy
            order.add(n, [a for a, c in conflicts.items() if c.hazard is Hazard.RAW])
            continue
        given = edges.of(n, conflicts)
        order.add(n, given)
        required = {
            a
            for a, conflict in conflicts.items()
            if a not in given and record.nodes[a].is_task and not edges.apart(n, a, conflict)
        }
        for a in sorted(order.not_before(n, required)):
            pairs.add(a, n, conflicts[a])
    if pairs.total == 0:
        return
    why = _PROMISES.get(policy, _SHARED_PAGES)
    fix = "order them with after= or P.seq, or use Deps.infer_bytes_overlap()"
    if record.bound.plan.records(Channel):
        why = _PROCESSES
        fix = "pass it on in a message, or send one when it is written and read it where that comes"
    elif policy not in _PROMISES:
        fix = "give each sequence pages of its own before it is written"
    raise pairs.error("conflict, and nothing orders them:", why, fix)


class _Edges:
    """What a dependence policy orders."""

    def __init__(self, record: Record, policy: DepsPolicy, spaces: Spaces) -> None:
        self._nodes = record.nodes
        self._policy = policy
        self._spaces = spaces
        self._tensors = record.bound.plan.records(Tensor)
        self._messages = {channel.element for channel in record.bound.plan.records(Channel)}
        self._equal: dict[Key, History] = {}

    def of(self, n: int, conflicts: dict[int, Conflict]) -> set[int]:
        """The nodes before n with an edge to it, not counting those that the program gives."""
        match self._policy:
            case DepsPolicy.EXPLICIT:
                return set()
            case DepsPolicy.EXACT:
                return self._by_equal_regions(n)
            case _:
                return {a for a, conflict in conflicts.items() if self._is_seen(n, a, conflict)}

    def apart(self, n: int, a: int, conflict: Conflict) -> bool:
        """Whether the policy keeps two updates apart, whatever their order."""
        if conflict.hazard is not Hazard.APART:
            return False
        if self._policy == DepsPolicy.EXACT:
            return self._key(n, conflict.second) == self._key(a, conflict.first)
        return self._policy == DepsPolicy.EXPLICIT or self._is_seen(n, a, conflict)

    def _is_seen(self, n: int, a: int, conflict: Conflict) -> bool:
        """Whether regions meet in the coordinates in which they are compared. Between processes
        only messages count."""
        first = self._nodes[a].regions[conflict.first]
        apart = self._nodes[a].process != self._nodes[n].process
        if apart and first.tensor not in self._messages:
            return False
        second = self._nodes[n].regions[conflict.second]
        on_pages = self._tensors[first.tensor].pool != NONE
        same = first.tensor == second.tensor
        return not (on_pages and same) or boxes_meet(first.dims, second.dims)

    def _by_equal_regions(self, n: int) -> set[int]:
        node = self._nodes[n]
        found: set[int] = set()
        for k in _reads_first(node):
            history = self._equal.get(self._key(n, k))
            if history is not None:
                conflicts = history.conflicts(node.regions[k].mode)
                found |= {a for (a, _), hazard in conflicts if hazard is not Hazard.APART}
        for k in _reads_first(node):
            self._equal.setdefault(self._key(n, k), History()).add((n, k), node.regions[k].mode)
        return found - {n}

    def _key(self, n: int, k: int) -> Key:
        node = self._nodes[n]
        region = node.regions[k]
        return (*self._spaces.geometry(region, node.copies[k]), *box(region.dims))


def _reads_first(node: Node) -> list[int]:
    full = [k for k, r in enumerate(node.regions) if all(dim.extent > 0 for dim in r.dims)]
    return sorted(full, key=lambda k: node.regions[k].mode != AccessMode.IN)
