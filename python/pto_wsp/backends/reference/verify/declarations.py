"""Whether kernels do what their parameters say.

Each task runs twice, in guarded memory with different poison: around its regions, and in those that
are Out. A write outside of what is declared changes poison, or an In region. A read outside, or of
an Out region, makes two different results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.backends.reference.bound import Array, BoundPlan
from pto_wsp.backends.reference.call import (
    Paged,
    View,
    kernel_error,
    make_body,
    page_views,
    paged,
    region_view,
)
from pto_wsp.backends.reference.region import Region, region_params
from pto_wsp.backends.reference.verify.boxes import boxes_meet
from pto_wsp.backends.reference.verify.guard import (
    POISON,
    Arena,
    Place,
    lay_in_group,
    lay_of,
    on_small_pool,
    parts_of,
)
from pto_wsp.backends.reference.verify.private import address, byte_span
from pto_wsp.backends.reference.verify.report import declaration_error
from pto_wsp.backends.reference.walk import Task
from pto_wsp.errors import PtoError
from pto_wsp.kernels import LoadedKernel, NativeKernel
from pto_wsp.plan import NONE, AccessMode, ParamKind, Tensor

_SMALL = 0x3F  # poison that does not swallow what is added to it
_MOST_ARENAS = 256
_MOST_BYTES = 64 << 20
_COPIES = 'under verify="full" a kernel runs on copies, and its Out regions hold nothing'
Outs = list[list[Array]]


class Declarations:
    """Runs tasks on the memory of a bound plan, and looks at what they do."""

    def __init__(self, bound: BoundPlan, kernels: tuple[LoadedKernel, ...]) -> None:
        plan = bound.plan
        self._bound = bound
        self._plan = plan
        self._bodies = [make_body(plan, i, kernel) for i, kernel in enumerate(kernels)]
        self._kinds = [
            [ParamKind(p.kind) for p in region_params(plan, i)] for i in range(len(kernels))
        ]
        self._names = [
            [plan.string(p.name) for p in region_params(plan, i)] for i in range(len(kernels))
        ]
        self._tensors = plan.records(Tensor)
        self._arenas: dict[object, Arena | None] = {}
        self._may_meet: dict[int, list[tuple[int, int]]] = {}  # by site
        self._is_native = [isinstance(kernel, NativeKernel) for kernel in kernels]
        self._bytes = 0

    def run(self, task: Task) -> None:
        """Runs a task; RaceError if it does what it may not."""
        mine = [self._view(region, kind) for region, kind in self._regions(task)]
        arena = self._arena(task, mine)
        if arena is None:
            self._call(task, [self._as_given(task, i, view) for i, view in enumerate(mine)])
            return
        parts = [parts_of(view) for view in mine]
        first, second = (self._run_in(arena, task, parts, k) for k in range(len(POISON)))
        if not _equal(first, second):
            raise self._two_results(arena, task, parts, first)
        for region, targets, values in zip(task.regions, parts, first, strict=True):
            if region.mode != AccessMode.IN:
                for target, value in zip(targets, values, strict=True):
                    target[...] = value

    # --- where the regions lie ---

    def _regions(self, task: Task) -> list[tuple[Region, ParamKind]]:
        return list(zip(task.regions, self._kinds[task.kernel], strict=True))

    def _view(self, region: Region, kind: ParamKind) -> View:
        if kind == ParamKind.TOKEN:
            return None
        if self._tensors[region.tensor].pool != NONE:
            return paged(self._bound, region)
        return region_view(self._bound.tensors[region.tensor], region)

    def _as_given(self, task: Task, i: int, view: View) -> View:
        """A view as the kernel gets it: one that lies on one page is an array."""
        if isinstance(view, Paged) and self._kinds[task.kernel][i] != ParamKind.PAGED:
            return page_views(view)[0]
        return view

    def _places(self, task: Task, views: Sequence[View]) -> list[Place] | None:
        """Where to put each region. None if regions on pages share memory with others that are
        not: then the task runs unguarded."""
        groups = self._groups(task, views)
        if groups is None:
            return None
        pages = self._used_pages(task.regions)
        places: list[Place] = []
        for i, view in enumerate(views):
            if view is None:
                places.append(None)
            elif isinstance(view, Paged):
                pool = self._tensors[task.regions[i].tensor].pool
                places.append(on_small_pool(pool, view, pages[pool]))
            elif groups.count(groups[i]) == 1:
                places.append((lay_of(view), groups[i], 0))
            else:
                others = (v for v, g in zip(views, groups, strict=True) if g == groups[i])
                low = min(byte_span(v)[0] for v in others if isinstance(v, np.ndarray))
                places.append((lay_in_group(view), groups[i], byte_span(view)[0] - low))
        return places

    def _used_pages(self, regions: tuple[Region, ...]) -> dict[int, dict[int, int]]:
        """By pool: the pages of all regions, and their numbers among them."""
        found: dict[int, dict[int, int]] = {}
        for region in regions:
            pool = self._tensors[region.tensor].pool
            numbers = found.setdefault(pool, {})
            for page in region.pages:
                numbers.setdefault(page, len(numbers))
        return found

    def _groups(self, task: Task, views: Sequence[View]) -> list[int] | None:
        """A number for each region, the same for those that share memory that is written."""
        groups = list(range(len(views)))
        for i, j in self._pairs(task):
            first, second = views[i], views[j]
            a, b = task.regions[i], task.regions[j]
            if isinstance(first, Paged) and isinstance(second, Paged):
                continue  # they share a pool, if they share anything
            if a.tensor == b.tensor and not boxes_meet(a.dims, b.dims):
                continue
            if not _may_share(first, second):
                continue
            if isinstance(first, Paged) or isinstance(second, Paged):
                return None
            groups = [groups[i] if g == groups[j] else g for g in groups]
        return groups

    def _pairs(self, task: Task) -> list[tuple[int, int]]:
        """Regions of a call that may share memory, of which one is written: those of one tensor,
        and of tensors that lie in the same memory."""
        known = self._may_meet.get(task.site)
        if known is None:
            regions, kinds = task.regions, self._kinds[task.kernel]
            known = self._may_meet[task.site] = [
                (i, j)
                for j in range(len(regions))
                for i in range(j)
                if (regions[i].mode | regions[j].mode) != AccessMode.IN
                and ParamKind.TOKEN not in (kinds[i], kinds[j])
                and self._in_same_memory(regions[i].tensor, regions[j].tensor)
            ]
        return known

    def _in_same_memory(self, a: int, b: int) -> bool:
        first, second = (
            self._bound.tensors[t]
            if self._tensors[t].pool == NONE
            else self._bound.pool(self._tensors[t])
            for t in (a, b)
        )
        return a == b or np.may_share_memory(first, second)

    def _arena(self, task: Task, views: Sequence[View]) -> Arena | None:
        """Where the task runs; None: in its own memory."""
        key = self._lie(task, views)
        if key in self._arenas:
            return self._arenas[key]
        places = self._places(task, views)
        arena = None if places is None else Arena(places)
        size = 0 if arena is None else arena.size
        self._bytes += size
        if self._bytes > _MOST_BYTES or len(self._arenas) >= _MOST_ARENAS:
            self._arenas.clear()
            self._bytes = size
        self._arenas[key] = arena
        return arena

    def _lie(self, task: Task, views: Sequence[View]) -> object:
        """Equal for tasks whose regions lie alike: by themselves, and to each other where they may
        share memory."""
        if any(isinstance(view, Paged) for view in views):
            places = self._places(task, views)
            return None if places is None else tuple(places)
        arrays = [view for view in views if isinstance(view, np.ndarray)]
        shapes = tuple((array.shape, array.strides) for array in arrays)
        starts = [0 if v is None or isinstance(v, Paged) else address(v) for v in views]
        return task.site, shapes, tuple(starts[j] - starts[i] for i, j in self._pairs(task))

    # --- running ---

    def _run_in(
        self,
        arena: Arena,
        task: Task,
        sources: list[list[Array]],
        k: int,
        other: tuple[int, int] | None = None,
    ) -> Outs:
        """What the task makes of its regions amid poison `k`; `other` is a region that holds
        another poison."""
        _fill(task, arena.image_parts[k], sources)
        arena.raw[...] = arena.images[k]
        if other is not None:
            for part in arena.parts[other[0]]:
                part[...] = (
                    np.full(part.nbytes, other[1], np.uint8).view(part.dtype).reshape(part.shape)
                )
            _fill(task, arena.parts, sources)
        given = [self._given(arena, task, i) for i in range(len(task.regions))]
        self._call(task, given)
        results: Outs = []
        for region, mine, before in zip(
            task.regions, arena.parts, arena.image_parts[k], strict=True
        ):
            written = region.mode != AccessMode.IN
            results.append([part.copy() for part in mine] if written else [])
            for part, old in zip(mine if written else [], before, strict=False):
                part[...] = old
        # What it wrote is taken back, so nothing differs unless it wrote something else.
        if arena.raw.tobytes() != arena.images[k].tobytes():
            raise self._wrote_outside(arena, task, k)
        return results

    def _given(self, arena: Arena, task: Task, i: int) -> View:
        view = self._as_given(task, i, arena.given[i])
        if self._is_native[task.kernel]:
            return view
        if not isinstance(view, np.ndarray):
            if isinstance(view, Paged) and task.regions[i].mode == AccessMode.IN:
                pool = view.pool.view()
                pool.flags.writeable = False
                return Paged(pool, view.table, view.region)
            return view
        given = view.view()
        given.flags.writeable = task.regions[i].mode != AccessMode.IN
        return given

    def _call(self, task: Task, views: Sequence[View]) -> None:
        try:
            self._bodies[task.kernel](task, views)
        except PtoError:
            raise
        except Exception as error:
            if isinstance(error, ValueError) and "read-only" in str(error):
                what = f"writes a region that is read-only: {self._inputs(task)} is declared In"
                raise declaration_error(self._plan, task, what, "declare it InOut") from error
            raise kernel_error(self._plan, task, error, _COPIES) from error

    def _inputs(self, task: Task) -> str:
        named = zip(self._names[task.kernel], task.regions, strict=True)
        return " or ".join(name for name, region in named if region.mode == AccessMode.IN)

    # --- what went wrong ---

    def _wrote_outside(self, arena: Arena, task: Task, k: int) -> PtoError:
        names = self._names[task.kernel]
        changed = np.flatnonzero(arena.raw != arena.images[k])
        first = int(changed[0])
        for i, region in enumerate(task.regions):
            same = _equal([arena.parts[i]], [arena.image_parts[k][i]])
            if region.mode == AccessMode.IN and not same:
                arena.raw[...] = arena.images[k]
                what = f"writes {names[i]}, which is declared In"
                return declaration_error(self._plan, task, what, f"declare {names[i]} InOut")
        where = arena.where(first, names)
        arena.raw[...] = arena.images[k]
        what = f"writes outside its regions: {where}"
        return declaration_error(self._plan, task, what, "pass a region that holds all it writes")

    def _two_results(
        self, arena: Arena, task: Task, sources: list[list[Array]], first: Outs
    ) -> PtoError:
        names = self._names[task.kernel]
        if not _equal(first, self._run_in(arena, task, sources, 0)):
            what = "gives two results for the same input: it is not deterministic"
            fix = "let it depend on its arguments alone; then verify can look at the rest"
            return declaration_error(self._plan, task, what, fix)
        for i, region in enumerate(task.regions):
            if region.mode != AccessMode.OUT:
                continue
            others = [self._run_in(arena, task, sources, 0, (i, p)) for p in (POISON[1], _SMALL)]
            if _equal(first, others[0]):
                continue
            if _is_kept(i, [first, *others]):
                what = (
                    f"leaves elements of {names[i]} as they were, or reads them: it is declared Out"
                )
                fix = f"write all of {names[i]}, or declare it InOut"
                return declaration_error(self._plan, task, what, fix)
            what = f"reads {names[i]}, which is declared Out (or it is not deterministic)"
            return declaration_error(self._plan, task, what, f"declare {names[i]} InOut")
        what = "reads outside its regions (or it is not deterministic)"
        fix = "pass a region that holds all it reads"
        return declaration_error(self._plan, task, what, fix)


def _fill(task: Task, parts: list[list[Array]], sources: list[list[Array]]) -> None:
    """Gives the regions that a task may read what they hold."""
    for region, mine, values in zip(task.regions, parts, sources, strict=True):
        if region.mode != AccessMode.OUT:
            for part, value in zip(mine, values, strict=True):
                part[...] = value


def _is_kept(i: int, results: list[Outs]) -> bool:
    """Whether all that differs between results is the poison that an Out region held before."""
    for k, parts in enumerate(results[0]):
        for number in range(len(parts)):
            found = [_bytes(result[k][number]) for result in results]
            differs = (found[0] != found[1]).any(axis=1)
            if not differs.any():
                continue
            held = (POISON[0], POISON[1], _SMALL)
            if k != i or any((f[differs] != h).any() for f, h in zip(found, held, strict=True)):
                return False
    return True


def _bytes(array: Array) -> Array:
    """One row of bytes for each element."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, array.itemsize)


def _equal(a: Outs, b: Outs) -> bool:
    """Whether all bits are the same."""
    return all(
        x.tobytes() == y.tobytes()
        for xs, ys in zip(a, b, strict=True)
        for x, y in zip(xs, ys, strict=True)
    )


def _may_share(a: View, b: View) -> bool:
    first, second = (v.pool if isinstance(v, Paged) else v for v in (a, b))
    return first is not None and second is not None and np.may_share_memory(first, second)
