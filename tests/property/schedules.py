"""Random legal schedules, as directives of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.ir import Binary, BinaryOp, Const
from pto_wsp.plan import (
    Affinity,
    DepthScope,
    DispatchPolicy,
    PoolPolicy,
    ReadyPolicy,
    TimingPolicy,
    WindowUnit,
)

TRACED = ir.Directive("TRACE", (1, 1 << 16))
# On a virtual clock, where tasks take 0 to 4 cycles.
VIRTUAL = ir.Directive("TRACE", (2, 1 << 16, Binary(BinaryOp.MOD, ir.TaskOrdinal(), Const(5))))
STEALS, PRIORITY = ReadyPolicy.WORK_STEAL, ReadyPolicy.PRIORITY


def some(*options: object) -> st.SearchStrategy:
    return st.sampled_from(options)


@st.composite
def keys(draw: st.DrawFn) -> ir.Expr:
    """Of names that loops of random programs have, with a value for tasks outside of them."""
    leaf: ir.Expr = draw(
        some(
            ir.TaskOrdinal(),
            ir.TaskSite(),
            ir.TaskAxis("i1", 3),
            ir.TaskAxis("i2", 0),
            ir.TaskAxis("w", -1),
        )
    )
    match draw(some("plain", "mod", "product", "select", "negative")):
        case "mod":
            return Binary(BinaryOp.MOD, leaf, Const(draw(some(1, 2, 5))))
        case "product":
            return Binary(BinaryOp.MUL, leaf, Const(7))
        case "select":
            return ir.Select(Binary(BinaryOp.GT, leaf, Const(2)), Const(1), leaf)
        case "negative":
            return Binary(BinaryOp.SUB, Const(0), leaf)
        case _:
            return leaf


@st.composite
def dispatches(draw: st.DrawFn, steals: bool = False) -> tuple[ir.DirectiveArg, ...]:
    """Any policy but BY_KEY, whose keys would have to be workers."""
    kinds = [DispatchPolicy.WORK_STEAL, DispatchPolicy.AFFINITY]
    if not steals:
        kinds += [DispatchPolicy.ROUND_ROBIN, DispatchPolicy.HASH, DispatchPolicy.STATIC_PARTITION]
    match draw(st.sampled_from(kinds)):
        case DispatchPolicy.ROUND_ROBIN as kind:
            return kind, draw(some(1, 2, 3, 9))
        case DispatchPolicy.STATIC_PARTITION as kind:
            return (kind, 0, *draw(some((), (3,), (1, 1, 20))))
        case DispatchPolicy.WORK_STEAL as kind:
            return (kind,)
        case kind:
            return kind, draw(keys())


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int]:
    """Tasks or bytes; `fitting` makes those of bytes large enough for each task alone."""
    if draw(some(True, False)):
        return draw(some(1, 2, 7, 64, 8192)), WindowUnit.TASKS
    return draw(some(1, 16, 100, 3000)), WindowUnit.BYTES


def fitting(
    schedule: tuple[ir.Directive, ...], most: int, loops: Set[str]
) -> tuple[ir.Directive, ...]:
    """The schedule for tasks that write up to `most` bytes, in loops of these names."""

    def fits(directive: ir.Directive) -> Iterator[ir.Directive]:
        match directive.args:
            case (int(limit), WindowUnit.BYTES, mode) if directive.name == "WINDOW":
                yield ir.Directive("WINDOW", (max(limit, most), WindowUnit.BYTES, mode))
            case (str(axis), _) if axis not in loops:
                return
            case _:
                yield directive

    return tuple(fit for directive in schedule for fit in fits(directive))


@st.composite
def schedules(draw: st.DrawFn, issued: bool | None = None) -> tuple[ir.Directive, ...]:
    """Complete dependence policies with any other directives; always a trace. `issued` says
    whether there are directives beyond window, start and ready."""
    given: list[ir.Directive] = [draw(some(TRACED, TRACED, VIRTUAL))]
    ready = draw(some(None, 1, 2, 3)) if issued else draw(some(None, 1, 2))
    maybe: dict[str, Callable[[], tuple[ir.DirectiveArg, ...]]] = {
        "DEPS": lambda: (draw(some(0, 2)),),
        "START": lambda: draw(some((0, 0), (1, 0), (2, 1), (2, 5), (2, 100_000))),
        "WINDOW": lambda: (*draw(windows()), draw(some(0, 0, 2))),
    }
    if issued:
        streams = draw(some(None, 1, 2, 5))
        maybe |= _issued(draw, ready == STEALS, streams)
    if ready is not None:
        key = (draw(keys()),) if ready == PRIORITY else ()
        given.append(ir.Directive("READY", (ready, *key)))
    for name, args in maybe.items():
        if draw(some(True, True, False)):
            given.append(ir.Directive(name, args()))
    if draw(some(True, False, False)):  # seldom, since it keeps a run from being inline
        given.append(ir.Directive("BATCH_DEPS", (draw(some(1, 2, 5, 1000)),)))
    axes = draw(st.lists(some("i1", "i2", "w"), max_size=2, unique=True))
    given += [ir.Directive("PREFETCH", (axis, draw(some(1, 2, 7)))) for axis in axes]
    if issued:
        given += _gates(draw, given)
    return tuple(given)


def _issued(
    draw: st.DrawFn, steals: bool, streams: int | None
) -> dict[str, Callable[[], tuple[ir.DirectiveArg, ...]]]:
    timings = [(TimingPolicy.IMMEDIATE, 0), (TimingPolicy.RATE_LIMIT, 900_000)]
    timings += [(TimingPolicy.BATCHED, n) for n in (1, 2, 7, 1000)]
    if streams is not None:
        timings += [(TimingPolicy.INTERLEAVED, n) for n in (1, 2, 3)]
    found: dict[str, Callable[[], tuple[ir.DirectiveArg, ...]]] = {
        "TIMING": lambda: draw(st.sampled_from(timings)),
        "POOLS": lambda: draw(
            st.tuples(st.just(PoolPolicy.CUSTOM), some(1, 2, 5), keys())
            | st.just((PoolPolicy.BY_EXEC_UNIT,))
        ),
    }
    if steals or draw(some(True, False)):
        found["DISPATCH"] = lambda: draw(dispatches(steals))
    else:
        found["AFFINITY"] = lambda: (draw(some("i1", "i2", "w")), draw(st.sampled_from(Affinity)))
    if streams is not None:
        number = streams
        found |= {"STREAMS": lambda: (number,), "STREAM_BY": lambda: (draw(keys()),)}
    return found


def _gates(draw: st.DrawFn, given: list[ir.Directive]) -> list[ir.Directive]:
    names = {directive.name for directive in given}
    scopes = [DepthScope.GLOBAL, DepthScope.KEY]
    scopes += [DepthScope.STREAM] if "STREAMS" in names else []
    scopes += [DepthScope.POOL] if "POOLS" in names else []
    chosen = draw(st.lists(st.sampled_from(scopes), max_size=3, unique=True))
    return [
        ir.Directive(
            "PIPELINE_DEPTH",
            (draw(some(1, 2, 4)), scope, 0, *((draw(keys()),) if scope == DepthScope.KEY else ())),
        )
        for scope in chosen
    ]
