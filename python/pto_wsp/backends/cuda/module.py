"""What a generated kernel is given, and what it says: the words that host and device share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from pto_wsp.backends.cuda.ordering import OrderedLoop
from pto_wsp.backends.cuda.sync import Wait
from pto_wsp.backends.cuda.timeline import Shape


class Kind(Enum):
    """What the kernel is given for an argument."""

    POINTER = "pointer"  # to a bound tensor
    STRIDE = "stride"
    EXTENT = "extent"
    PAGE = "page"  # tokens a page, compiled in
    NUMBER = "number"
    ARRAY = "array"  # pointer to what control reads
    ARRAY_EXTENT = "array_extent"
    ARRAY_STRIDE = "array_stride"


@dataclass(frozen=True, slots=True)
class Argument:
    """`number` is that of the tensor or of the symbol."""

    name: str
    kind: Kind
    number: int
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Module:
    """The text of a module that defines `persistent`, and what it is to be given, in order, before
    the arguments that every such kernel has (FIXED). `wanted`: tensors and dimensions whose extents
    are better compiled in. `rides`: calls whose tasks are run by the last of those that they wait
    for. `ordered`: parallel loops that run as `P.seq` does. `diagonals`: axes of rows and columns
    that are numbered so, `by_rows` those that are not, since blocks have ranges of numbers.
    `records`: how those of a traced plan lie."""

    text: str
    arguments: tuple[Argument, ...]
    faults: dict[int, tuple[str, ...]]  # by site: what its kernel's faults are
    waits: tuple[Wait, ...]
    wanted: frozenset[tuple[int, int]]
    rides: int
    ordered: tuple[OrderedLoop, ...]
    diagonals: tuple[tuple[int, int], ...]
    by_rows: tuple[tuple[int, int], ...]
    together: bool  # whether all blocks have to run at a time
    direct: bool  # whether the first number of a block is its own
    records: Shape | None = None
    expanded: bool = False  # it is given a table of tasks


# What every kernel is given: control words, what it needs (i64), counters and their capacity,
# workspace and its capacity, tries before a wait is given up, and compiled in: whether the first
# number of a block is its own, and whether the task hash is added up.
FIXED = (
    *("CTRL", "NEED", "EVENTS", "EVENT_CAP", "SPACE", "SPACE_CAP", "TRIES"),
    *("DIRECT: tl.constexpr", "HASH: tl.constexpr"),
)
UNSPECIALISED = ("EVENT_CAP", "SPACE_CAP", "TRIES")


class Word(IntEnum):
    """Words of CTRL."""

    EPOCH = 0  # runs so far; its lowest bit says which half of the counters is in use
    TICKET = 1  # the next number
    ENDED = 2  # blocks that have ended
    ERROR = 3
    SITE = 4
    NUMBER = 5
    DETAIL = 6
    EVENTS_USED = 7  # counters that the last run used, which the next one clears
    SEEN = 8  # what a counter said when a wait for it was given up
    WANTED = 9  # and what it should have said
    CONTROL = 10  # whether something is wrong with control
    KERNEL = 16  # whether a kernel has failed


CTRL_WORDS = 32


class Need(IntEnum):
    """Words of NEED."""

    TICKETS = 0
    EVENTS = 1
    SPACE = 2
    TASKS = 3
    HASH = 4  # two of them
    STOLEN = 6  # tasks that blocks took from others


NEED_WORDS = 8  # behind them: which task a fault is about, faults.Places
MOST_TASKS = 1 << 30  # numbers from here on are those of no task


class Fault(IntEnum):
    """What ERROR says."""

    NONE = 0
    CAPACITY = 1  # more tasks, counters or workspace than there is room for: NEED says
    OUTSIDE = 2  # a region outside its tensor, or larger than its tile
    STUCK = 3  # a wait that did not end: DETAIL is the wait
    NOBODY = 4  # a task for a block that is not there: DETAIL is the block


HELPERS = f'''
@triton.jit
def pto_floordiv(a, b):
    """Rounds down, as Python does."""
    d = tl.where(b == 0, 1, b)
    q = a // d
    r = a - q * d
    return q - tl.where((r != 0) & ((r < 0) != (d < 0)), 1, 0)


@triton.jit
def pto_mod(a, b):
    return a - pto_floordiv(a, b) * b


@triton.jit
def pto_fault(CTRL, code: tl.constexpr, site: tl.constexpr, number, detail):
    """The first fault of a run is kept; numbers taken after it are those of no task. Whether it is
    the first."""
    tl.atomic_max(CTRL + {Word.TICKET:d}, {MOST_TASKS})
    first = tl.atomic_cas(CTRL + {Word.ERROR:d}, 0, code) == 0
    tl.store(CTRL + {Word.SITE:d}, site, mask=first)
    tl.store(CTRL + {Word.NUMBER:d}, number, mask=first)
    tl.store(CTRL + {Word.DETAIL:d}, detail, mask=first)
    return first


@triton.jit
def pto_wait(CTRL, counter, target, TRIES, site: tl.constexpr, number, wait: tl.constexpr):
    """Until the counter has reached the target, or a fault has ended the run. Whether this wait is
    the fault."""
    stuck = tl.full((), 0, tl.int1)
    seen = tl.atomic_add(counter, 0, sem="acquire")
    tries = tl.full((), 0, tl.int64)
    while seen < target:
        tries += 1
        if tries >= TRIES:
            stuck = stuck | pto_fault(CTRL, {Fault.STUCK:d}, site, number, wait)
            tl.store(CTRL + {Word.SEEN:d}, seen, mask=stuck)
            tl.store(CTRL + {Word.WANTED:d}, target.to(tl.int32), mask=stuck)
        seen = tl.atomic_add(counter, 0, sem="acquire")
        if (tries & 1023) == 0 or tries >= TRIES:
            if tl.load(CTRL + {Word.ERROR:d}, volatile=True) != 0:
                seen = target.to(tl.int32)
    return stuck


@triton.jit
def pto_mix(h):
    """The finaliser of MurmurHash3."""
    h = h.to(tl.uint64)
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53
    return (h ^ (h >> 33)).to(tl.int64)
'''
