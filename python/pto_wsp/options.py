"""Every option of `compile(...)`, typed, in one table.

An option acts or is refused with the reason. Those in COMMON are for every target; a target names
the others that it takes. ELSEWHERE are options of other systems and of targets to come: asking for
one gets an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option: `accepts` says whether a value is `expected`."""

    name: str
    expected: str
    default: T
    doc: str
    accepts: Callable[[object], bool]

    def of(self, options: Mapping[str, object]) -> T:
        """Its value among those given, else the default; CompileError if it makes no sense."""
        value = options.get(self.name, self.default)
        if self.accepts(value):
            return cast("T", value)
        raise CompileError(
            Code.TARGET_OPTION,
            f"compile({self.name}={value!r}): expected {self.expected}",
            loc=srcloc.here(),
            why=self.doc,
            fix=f"pass such a value, or leave the option out (default: {self.default!r})",
        )


def _within(low: int, high: int) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return accepts


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


OPTIMIZATION_LEVEL = Option(
    "optimization_level",
    "an integer from 0 to 3",
    3,
    "how hard the compiler of C++ kernels tries; plans are the same at every level",
    _within(0, 3),
)
ENABLE_DEBUG = Option(
    "enable_debug",
    "True or False",
    False,
    "C++ kernels for a debugger: with symbols, at level 0 unless optimization_level is given",
    _is_bool,
)
ENABLE_PROFILING = Option(
    "enable_profiling",
    "True or False",
    False,
    "runs are traced, as by TracePolicy.timestamps(), unless the schedule has a trace policy",
    _is_bool,
)
VERIFY: Option[str | None] = Option(
    "verify",
    '"full", "schedule" or None',
    None,
    "looks for races before each run, or compares the trace of each run with the order that the "
    "program asks for",
    lambda value: value in (None, "full", "schedule"),
)
MAX_WORKERS = 4096
NUM_THREADS = Option(
    "num_threads",
    f"an integer from 0 to {MAX_WORKERS}",
    0,
    "workers of the program; 0: PTO_WSP_NUM_THREADS, else as many as there are cores or as the "
    "schedule names",
    _within(0, MAX_WORKERS),
)
SEED = Option(
    "seed",
    "an integer from 0 to 2**64 - 1",
    0,
    "where thieves begin to look for work",
    _within(0, 2**64 - 1),
)

WORKSPACE_LIMIT = Option(
    "workspace_limit",
    "an integer of at least 0",
    0,
    "most bytes for temporaries of a run, which is refused if it needs more; 0: no limit",
    _within(0, 2**63 - 1),
)

NUM_WARPS = Option(
    "num_warps",
    "1, 2, 4, 8 or 16",
    4,
    "warps of a block of threads, each of which runs one task at a time",
    lambda value: type(value) is int and value in (1, 2, 4, 8, 16),
)
NUM_STAGES = Option(
    "num_stages",
    "an integer from 1 to 16",
    3,
    "how far loads of a kernel's loops run ahead",
    _within(1, 16),
)
BLOCKS_PER_SM = Option(
    "blocks_per_sm",
    "an integer from 1 to 32",
    2,
    "blocks of threads for each multiprocessor of the GPU",
    _within(1, 32),
)
MAX_REGISTERS = Option(
    "max_registers",
    "an integer from 0 to 255",
    0,
    "registers of a thread; fewer let more blocks run at a time; 0: as many as the compiler likes",
    _within(0, 255),
)
TF32 = Option(
    "tf32",
    "True or False",
    False,
    "products of f32 tiles may be rounded to the precision of tensor cores",
    _is_bool,
)

ALLOW_HOST_EXPAND = Option(
    "allow_host_expand",
    "True or False",
    False,
    "where dependences are known in a run only, the host lists all tasks and what they wait for",
    _is_bool,
)

CHECK_PAGES = Option(
    "check_pages",
    "True or False",
    True,
    "whether the page numbers of a task are compared with the pool before it runs",
    _is_bool,
)

COMMON: tuple[Option[Any], ...] = (OPTIMIZATION_LEVEL, ENABLE_DEBUG, ENABLE_PROFILING, VERIFY)
OPTIONS: tuple[Option[Any], ...] = (
    *(*COMMON, NUM_THREADS, SEED, WORKSPACE_LIMIT),
    *(NUM_WARPS, NUM_STAGES, BLOCKS_PER_SM, MAX_REGISTERS, TF32, ALLOW_HOST_EXPAND),
    CHECK_PAGES,
)

# By name: why there is no such option, and what to do instead.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "num_streams": ("how many streams there are is part of the schedule", "write .streams(n)"),
    "num_aicpus": (
        "it counts the control processors of an Ascend NPU, and no target here has any",
        "leave it out",
    ),
    "grid": ("it is the tile grid of an AIE array, and no target here has one", "leave it out"),
}


def check_known(given: Mapping[str, object], target: str, takes: frozenset[str]) -> None:
    """CompileError if the target has no such option."""
    reason = refusal(given, takes)
    if reason is None:
        return
    name, why, fix = reason
    raise CompileError(
        Code.TARGET_OPTION,
        f"target {target!r} has no option {name!r}",
        loc=srcloc.here(),
        why=why,
        fix=fix,
    )


def refusal(given: Mapping[str, object], takes: frozenset[str]) -> tuple[str, str, str] | None:
    """The first option that a target which takes those does not have, why, and what to do."""
    accepted = {option.name for option in COMMON} | takes
    unknown = sorted(set(given) - accepted)
    if not unknown:
        return None
    usual = "an option that is ignored would change nothing"
    fix = f"its options are: {', '.join(sorted(accepted))}"
    return unknown[0], *ELSEWHERE.get(unknown[0], (usual, fix))
