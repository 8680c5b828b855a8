"""Timelines: what each task leaves behind in a traced run, and what that means.

A record has its place by the number of the task, so that nobody asks for one: in row t lies what
the block that took number t did, the task of that number first, then those that it ran as the last
of others. Only the text of traced plans has these lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.code import I64, Code
from pto_wsp.backends.cuda.counting import Found
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Loop, Phases, calls
from pto_wsp.backends.cuda.sync import Synchronisation
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.plan import Directive, Plan, ScheduleArg, ScheduleEntry, Site
from pto_wsp.runtime.run_errors import run_error
from pto_wsp.runtime.trace import Recorded, Trace, trace_dtype

_DEFAULT_CAPACITY = 65536  # tasks of a worker, of plans that do not say it
_FIRST = 1 << 16  # tasks that there is room for before anything is known
_UNLIMITED = 1 << 62


class Head(IntEnum):
    """Words in front of the records (i64)."""

    CLOCK = 0  # where there is no clock: counts the looks at it
    BEGAN = 1


_HEAD_WORDS = 8


class Field(IntEnum):
    """Words of a record; the indices of its loops follow."""

    SITE = 0  # plus 1; 0: there is no record
    BLOCK = 1
    PLACE = 2  # the multiprocessor
    START = 3
    END = 4
    STOLEN = 5  # whether it was another block's


_FIELDS = len(Field)

# What traced kernels are given besides: the buffer, how many numbers it has room for, how many
# should have, and whether there is a clock.
ARGUMENTS = ("TRACE", "TRACE_CAP", "TRACE_MOST", "CLOCK: tl.constexpr")
UNSPECIALISED = ("TRACE_CAP", "TRACE_MOST")

HELPERS = f'''
@triton.jit
def pto_now(TRACE, CLOCK: tl.constexpr):
    """Nanoseconds that all multiprocessors agree about; in the interpreter, a count."""
    if CLOCK:
        return tl.extra.cuda.globaltimer()
    else:
        return tl.atomic_add(TRACE + {Head.CLOCK:d}, 1, sem="relaxed")


@triton.jit
def pto_place(CLOCK: tl.constexpr):
    if CLOCK:
        return tl.extra.cuda.smid()
    else:
        return tl.program_id(0)


@triton.jit
def pto_record(row, kept, site: tl.constexpr, start, end, CLOCK: tl.constexpr):
    tl.store(row + {Field.SITE:d}, site + 1, mask=kept)
    tl.store(row + {Field.BLOCK:d}, tl.program_id(0), mask=kept)
    tl.store(row + {Field.PLACE:d}, pto_place(CLOCK), mask=kept)
    tl.store(row + {Field.START:d}, start, mask=kept)
    tl.store(row + {Field.END:d}, end, mask=kept)
'''


@dataclass(frozen=True, slots=True)
class Shape:
    """How records lie: `lanes` of them for each number, with room for the indices of `depth`
    loops. `riders` have the lanes behind the first, by site. `nest` has the program order;
    `in_order`: numbers have it too."""

    nest: Block
    depth: int
    riders: dict[int, int]
    in_order: bool = True

    @staticmethod
    def of(plan: Plan, nest: Block, sync: Synchronisation) -> Shape:
        riding = [site for site, tasks in sync.tasks.items() if tasks.rides is not None]
        return Shape(nest, depth_of(plan), {site: lane for lane, site in enumerate(riding, 1)})

    @property
    def lanes(self) -> int:
        return 1 + len(self.riders)

    @property
    def words(self) -> int:
        return _FIELDS + self.depth


class Recorder:
    """Writes the lines that record tasks. `stolen` is the text that says whether the block has
    taken what was another one's, "" if none ever does."""

    def __init__(self, code: Code, shape: Shape, stolen: str = "") -> None:
        self._code = code
        self._shape = shape
        self._stolen = stolen

    def begin(self) -> None:
        """In front of everything, so that looking for tasks is part of the time."""
        code = self._code
        with code.in_prelude(), code.block("if tl.program_id(0) == 0:"):
            code.line(f"tl.store(TRACE + {Head.BEGAN:d}, pto_now(TRACE, CLOCK))")

    def start(self) -> str:
        return self._code.named("pto_now(TRACE, CLOCK)", "start")

    def end(self, call: Call, found: Found, start: str, *, rides: bool) -> None:
        code, shape = self._code, self._shape
        code.line("tl.debug_barrier()")  # all warps of the block have ended the task
        end = code.named("pto_now(TRACE, CLOCK)", "end")
        lane = shape.riders[call.site] if rides else 0
        at = f"((t).to({I64}) * {shape.lanes} + {lane}) * {shape.words}"
        row = code.named(f"TRACE + {_HEAD_WORDS} + {at}", "row")
        kept = code.named("t < TRACE_CAP", "kept")
        code.line(f"pto_record({row}, {kept}, {call.site}, {start}, {end}, CLOCK)")
        if self._stolen and not rides:  # who runs it for others is the one that made it ready
            code.line(f"tl.store({row} + {Field.STOLEN:d}, {self._stolen}, mask={kept})")
        for level, variable in found.scope.loops.items():
            code.line(f"tl.store({row} + {_FIELDS + level}, {variable}, mask={kept})")


# --- on the host ---


class Room:
    """Room for the records of runs: as much as the last ones needed, at most what the schedule
    says of each worker."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self._most = _capacity(plan) * workers
        self._cap = min(_FIRST, self._most)

    def keep_all(self) -> None:
        self._most = _UNLIMITED

    def grow(self, tickets: int) -> None:
        self._cap = max(self._cap, min(tickets, self._most))

    def arguments(self, shape: Shape) -> tuple[Any, ...]:
        """A buffer for one run, since the next may begin before it is read, and what else the
        kernel is given."""
        torch = device.torch()
        words = _HEAD_WORDS + self._cap * shape.lanes * shape.words
        try:
            buffer = torch.zeros(words, dtype=torch.int64, device=device.name())
        except torch.OutOfMemoryError as error:
            message = f"there is no room for the trace of {self._cap} tasks"
            raise run_error(ErrorCode.MACHINE_RESOURCES, message, why=str(error)) from None
        return buffer, self._cap, self._most, not device.is_interpreted()


def depth_of(plan: Plan) -> int:
    return max((site.level for site in plan.records(Site)), default=0)


def _capacity(plan: Plan) -> int:
    """Tasks of each worker that a run records."""
    args = plan.records(ScheduleArg)
    for entry in plan.records(ScheduleEntry):
        if entry.id == Directive.TRACE and entry.num_args > 1:
            return args[entry.args + 1].bits
    return _DEFAULT_CAPACITY


def no_trace(plan: Plan) -> Trace:
    return np.zeros(0, _dtype(plan))


def _dtype(plan: Plan) -> np.dtype[Any]:
    longest = max((len(name) for name in plan.kernel_names), default=1)
    return trace_dtype(depth_of(plan), longest)


def read(plan: Plan, shape: Shape, buffer: Any, *, tickets: int, tasks: int) -> Recorded:
    """What a run recorded."""
    head = buffer[:_HEAD_WORDS].cpu().numpy()
    used = buffer[_HEAD_WORDS : _HEAD_WORDS + tickets * shape.lanes * shape.words]
    raw = used.cpu().numpy().reshape(-1, shape.words)
    there = np.flatnonzero(raw[:, Field.SITE])
    raw, number, lane = raw[there], there // shape.lanes, there % shape.lanes
    sites = raw[:, Field.SITE] - 1
    order = _program_order(shape.nest, sites, raw[:, _FIELDS:])
    raw, number, lane, sites = raw[order], number[order], lane[order], sites[order]
    if shape.riders or not shape.in_order:  # numbers are those of other tasks only, or of none
        kept = len(raw) if len(raw) == tasks else _without_gaps(number, lane)
        raw, sites = raw[:kept], sites[:kept]
        number = np.arange(kept)
    rows = np.zeros(len(raw), _dtype(plan))
    rows["task_id"] = rows["seq"] = number
    kernels = np.array([plan.site_name(site) for site in range(len(plan.records(Site)))] or [""])
    rows["kernel"], rows["site"] = kernels[sites], sites
    rows["worker"] = raw[:, Field.BLOCK]
    rows["stolen"] = raw[:, Field.STOLEN]
    rows["indices"] = raw[:, _FIELDS:]
    began = min(int(head[Head.BEGAN]), int(raw[:, Field.START].min(initial=head[Head.BEGAN])))
    for column, field in (("ready", Field.START), ("start", Field.START), ("end", Field.END)):
        rows[f"{column}_ns"] = raw[:, field] - began
    rows["take"][np.argsort(rows["start_ns"], kind="stable")] = np.arange(len(rows))
    places = dict(zip(raw[:, Field.BLOCK].tolist(), raw[:, Field.PLACE].tolist(), strict=True))
    return Recorded((rows,), places={block: f"SM {place}" for block, place in places.items()})


def _program_order(
    nest: Block, sites: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """Tasks by place in the text and iteration, outermost first."""
    depth = indices.shape[1]
    places = np.zeros((int(sites.max(initial=0)) + 1, depth + 1), np.int64)
    text = _numbered(nest)
    for call, path in calls(nest):
        mine = [text[item.pc] for item, _ in path if isinstance(item, Loop)] + [text[call.pc]]
        if call.site < len(places):
            places[call.site, : len(mine)] = mine
    keys: list[npt.NDArray[np.int64]] = []
    for level in range(depth):
        keys += [places[sites, level], indices[:, level]]
    return np.lexsort([places[sites, depth], *reversed(keys)])


def _numbered(block: Block) -> dict[int, int]:
    """Loops and calls by pc, in the order of the text."""
    found: dict[int, int] = {}

    def go(block: Block) -> None:
        for item in block:
            match item:
                case Loop():
                    found[item.pc] = len(found)
                    go(item.body)
                case Branch():
                    go(item.then)
                    go(item.other)
                case Phases():
                    for child in item.children:
                        go(child)
                case Call():
                    found[item.pc] = len(found)
                case _:
                    pass

    go(block)
    return found


def _without_gaps(number: npt.NDArray[np.intp], lane: npt.NDArray[np.intp]) -> int:
    """How many rows there are before one may be missing: up to the last number that follows all
    smaller ones. What the last of several tasks runs comes behind all of them."""
    numbered = np.flatnonzero(lane == 0)
    follows = number[numbered] == np.arange(len(numbered))
    count = int(np.argmin(np.append(follows, False)))
    return int(numbered[count - 1]) + 1 if count else 0
