"""The reference backend on plans made by hand: what a plan means."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from pto_wsp.backends.base import Generated
from pto_wsp.backends.reference import ReferenceBackend
from pto_wsp.errors import CompileError, ExecutionError, KernelError, ScheduleError
from pto_wsp.plan import (
    AccessMode,
    Directive,
    ExprOp,
    Op,
    Plan,
    ScalarType,
    Tier,
    TierSet,
    TracePolicy,
)
from pto_wsp.runtime.bindings import Bound
from pto_wsp.srcloc import SrcLoc
from tests.backends.reference_runs import Array, bindings_of, engine_of, execute, recorder
from tests.kernels.sketch import P, Sketch, out

# --- program order ------------------------------------------------------------------------------


def wavefront() -> Plan:
    """X[i+1, j+1] = X[i, j+1] + X[i+1, j] + 1 for i < n, j < m."""
    s = Sketch()
    n, m, x = s.extent("n"), s.extent("m"), s.tensor("X", 2)
    cell = s.kernel("cell", [P("up", rank=0), P("left", rank=0), out("o", rank=0)])
    one = s.const(1)
    with s.loop("rows", n) as i, s.loop("cols", m) as j:
        di, dj = s.add(i, one), s.add(j, one)
        s.call(cell, [(x, [i, dj]), (x, [di, j]), (x, [di, dj])], loc=SrcLoc("waves_of_user.py", 7))
    return s.build()


def cell(up: Array, left: Array, o: Array) -> None:
    o[...] = up + left + 1


def test_dense_nest() -> None:
    x = np.ones((5, 4), np.float32)
    execute(wavefront(), {"n": 4, "m": 3, "X": x}, cell=cell)
    expected = np.ones((5, 4), np.float32)
    for i in range(4):
        for j in range(3):
            expected[i + 1, j + 1] = expected[i, j + 1] + expected[i + 1, j] + 1
    np.testing.assert_array_equal(x, expected)


def test_extents_are_bound_per_run() -> None:
    engine = engine_of(wavefront(), cell=cell)
    x = np.ones((5, 4), np.float32)
    counts = [
        engine.generate(bindings_of(engine.plan, {"n": n, "m": m, "X": x})).tasks
        for n, m in [(4, 3), (1, 1), (0, 3), (4, 0)]
    ]
    assert counts == [12, 1, 0, 0]


def ragged() -> tuple[Plan, int]:
    s = Sketch()
    n, lengths, x = s.extent("n"), s.array("lens", loc=SrcLoc("user.py", 3)), s.tensor("X", 2)
    kernel = s.kernel("visit", [P("x", rank=0)])
    with (
        s.loop("batch", n) as b,
        s.loop("token", s.load(lengths, b), lengths=lengths, parent=0) as t,
    ):
        s.call(kernel, [(x, [b, t])])
    return s.build(), lengths


def test_ragged_nest() -> None:
    plan, _ = ragged()
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    seen, visit = recorder()
    execute(plan, {"n": 3, "lens": np.array([2, 0, 4]), "X": x}, visit=visit)
    assert seen == [0, 1, 8, 9, 10, 11]


def test_blocks_and_ordered_loops_run_in_program_order() -> None:
    s = Sketch()
    x = s.tensor("X", 1)
    visit = s.kernel("visit", [P("x", rank=0)])

    def call(index: int) -> None:
        s.call(visit, [(x, [index])])

    call(s.const(9))
    s.b.emit(Op.NOP)
    s._path[-1] += 1
    with s.block(Op.SEQUENTIAL):
        call(s.const(8))
        with s.block(Op.COMBINE):
            call(s.const(7))
            with s.loop("t", s.const(2), start=s.const(3), ordered=True) as t:
                call(t)
        call(s.const(6))
    call(s.const(0))
    seen, visit_function = recorder()
    execute(s.build(), {"X": np.arange(10, dtype=np.float32)}, visit=visit_function)
    assert seen == [9, 8, 7, 3, 4, 6, 0]


def test_regions_have_steps_and_may_be_empty() -> None:
    s = Sketch()
    x = s.tensor("X", 2)
    kernel = s.kernel("k", [P("a", AccessMode.INOUT, rank=2), P("e", rank=1)])
    c = s.const
    s.call(
        kernel,
        [(x, [(c(1), c(2), c(2)), (c(0), c(3), c(1))]), (x, [c(0), (c(-5), c(0), c(1))])],
    )
    shapes: list[tuple[int, ...]] = []

    def k(a: Array, e: Array) -> None:
        shapes.append(e.shape)
        a += 1

    x_value = np.zeros((5, 3), np.float32)
    execute(s.build(), {"X": x_value}, k=k)
    assert shapes == [(0,)]
    assert x_value[:, 0].tolist() == [0, 1, 0, 1, 0]


def test_accumulation_is_an_update() -> None:
    s = Sketch()
    total, n = s.tensor("T", 1), s.const(4)
    kernel = s.kernel("add", [P("t", AccessMode.ACCUM, rank=1)])
    with s.loop("i", n):
        s.call(kernel, [(total, [(s.const(0), s.const(1))])])

    def add(t: Array) -> None:
        t += 2

    value = np.zeros(1, np.float32)
    execute(s.build(), {"T": value}, add=add)
    assert value.tolist() == [8]


def test_inputs_are_read_only() -> None:
    def cell_that_writes(up: Array, left: Array, o: Array) -> None:
        up[...] = 0

    x = np.ones((2, 2), np.float32)
    with pytest.raises(KernelError, match="read-only"):
        execute(wavefront(), {"n": 1, "m": 1, "X": x}, cell=cell_that_writes)


# --- errors of a run ----------------------------------------------------------------------------


def test_region_outside_its_tensor() -> None:
    with pytest.raises(ExecutionError) as caught:
        execute(wavefront(), {"n": 4, "m": 3, "X": np.ones((4, 4), np.float32)}, cell=cell)
    assert not isinstance(caught.value, KernelError)
    assert str(caught.value) == (
        "[PTO502] elements 4 to 4 of dimension 0 of tensor 'X' are outside its extent 4 in "
        "cell[3, 0]\n"
        "  --> waves_of_user.py:7\n"
        "  why: the shape of 'X' is (4, 4)\n"
        "  fix: correct the index or the extents of the loops, or bind a larger array"
    )


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ((-1, 2, 1), "elements -1 to 0 of {} are outside its extent 6"),
        ((0, 3, 3), "elements 0 to 6 of {} are outside its extent 6"),
        (
            (2**62, 3, 2**62),
            "elements 4611686018427387904 to 13835058055282163712 of {} are outside its extent 6",
        ),
        ((0, -1, 1), "a region of negative extent -1 in {}"),
        ((0, 1, 0), "a region of step 0 in {}"),
    ],
)
def test_bad_regions(dim: tuple[int, int, int], message: str) -> None:
    s = Sketch()
    x = s.tensor("X", 1)
    kernel = s.kernel("k", [P("x")])
    # The validator refuses constants that are plainly wrong, so they come from a binding.
    zero = s.extent("zero")
    nodes = tuple(s.add(zero, s.const(value)) for value in dim)
    s.call(kernel, [(x, [nodes])])
    with pytest.raises(ExecutionError) as caught:
        execute(s.build(), {"X": np.zeros(6, np.float32), "zero": 0}, k=lambda x: None)
    assert caught.value.message == message.format("dimension 0 of tensor 'X'") + " in k[]"
    assert caught.value.why == "the shape of 'X' is (6,)"


def test_negative_extent_names_axis_and_indices() -> None:
    s = Sketch()
    n, x = s.extent("n"), s.tensor("X", 1)
    kernel = s.kernel("k", [P("x", rank=0)])
    with s.loop("rows", n) as i:
        inner = s.op(ExprOp.SUB, s.const(1), i)
        with s.loop("cols", inner, loc=SrcLoc("user.py", 12)) as j:
            s.call(kernel, [(x, [j])])
    with pytest.raises(ExecutionError) as caught:
        execute(s.build(), {"n": 4, "X": np.zeros(6, np.float32)}, k=lambda x: None)
    assert str(caught.value) == (
        "[PTO503] axis 'cols' has the negative extent -1 at outer indices [2]\n"
        "  --> user.py:12\n"
        "  why: loops run 0 times or more, and shapes count elements\n"
        "  fix: use maximum(n, 0), maximum(n, start) where an axis has a start, or correct what "
        "the extent is made of"
    )


def test_overflow_in_an_extent() -> None:
    s = Sketch()
    n = s.extent("n")
    kernel = s.kernel("k", [])
    with s.loop("rows", s.op(ExprOp.MUL, n, n)):
        s.call(kernel, [])
    with pytest.raises(ExecutionError, match="the extent of axis 'rows': integer overflow"):
        execute(s.build(), {"n": 2**40}, k=lambda: None)


def test_lengths_have_to_fit_the_loop() -> None:
    plan, _ = ragged()
    values = {"n": 2, "lens": np.array([1, 1, 1]), "X": np.zeros((3, 4), np.float32)}
    with pytest.raises(ExecutionError) as caught:
        execute(plan, values, visit=lambda x: None)
    assert caught.value.loc is not None
    assert str(caught.value) == (
        "[PTO406] array 'lens' has 3 lengths, but axis 'batch' has 2 iterations\n"
        f"{caught.value.loc.render()}\n"
        "  note: declared at user.py:3\n"
        "  why: every index of the outer axis needs its length\n"
        "  fix: bind one length for each iteration, and both names in the same execute(...)"
    )


def test_values_outside_their_range() -> None:
    plan, _ = ragged()
    values = {"n": 2, "lens": np.array([1, -1]), "X": np.zeros((2, 4), np.float32)}
    with pytest.raises(ExecutionError, match="'lens' holds -1, legal are 0 to 9223372036854775807"):
        execute(plan, values, visit=lambda x: None)
    with pytest.raises(ExecutionError, match="'n' holds -2, legal are 0"):
        execute(plan, {**values, "n": -2}, visit=lambda x: None)


def test_read_only_tensors_are_not_written() -> None:
    plan = wavefront()
    x = np.ones((2, 2), np.float32)
    bindings = [*bindings_of(plan, {"n": 1, "m": 1, "X": x})]
    bindings[2] = Bound(2, x, read_only=True)
    with pytest.raises(ExecutionError, match="tensor 'X' is read-only, but tasks write it"):
        engine_of(plan, cell=cell).start(tuple(bindings), asynchronous=False)


def test_control_does_not_read_what_tasks_write() -> None:
    s = Sketch()
    lengths, x = s.array("lens"), s.tensor("X", 1)
    kernel = s.kernel("k", [out("x", rank=1)])
    s.call(kernel, [(x, [(s.const(0), s.load(lengths, s.const(0)))])])
    memory = np.ones(4, np.int64)
    values = {"lens": memory, "X": memory.view(np.float32)}
    with pytest.raises(ExecutionError, match="array 'lens' shares memory with tensor 'X'"):
        execute(s.build(), values, k=lambda x: None)


def test_python_kernel_that_fails() -> None:
    def bad(up: Array, left: Array, o: Array) -> None:
        if failing and up[()] == 5:
            raise ValueError("row 2")
        cell(up, left, o)

    failing = True
    engine = engine_of(wavefront(), cell=bad)
    x = np.ones((4, 2), np.float32)
    bindings = bindings_of(engine.plan, {"n": 3, "m": 1, "X": x})
    run = engine.start(bindings, asynchronous=False)
    with pytest.raises(KernelError) as caught:
        run.wait(None)
    error = caught.value
    assert str(error) == (
        "[PTO501] kernel cell[2, 0] failed: ValueError: row 2\n  --> waves_of_user.py:7"
    )
    assert (error.kernel, error.indices) == ("cell", (2, 0))
    assert isinstance(error.__cause__, ValueError)
    assert run.stats().tasks == 2
    failing = False
    assert engine.start(bindings, asynchronous=False).wait(None)  # the engine is usable again


def test_cpp_kernels_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", str(tmp_path))
    s = Sketch()
    n, x = s.extent("n"), s.tensor("X", 2)
    c = s.const
    scale = s.kernel(
        "scale",
        [P("a"), P("b", AccessMode.INOUT)],
        'if (a.shape(0) != 3) ptowsp_fail("three"); for (int i = 0; i < 3; ++i) b[i] += 2 * a[i];',
    )
    with s.loop("rows", n) as i:
        row = [(x, [i, (c(k), c(3), c(2))]) for k in (0, 1)]
        s.call(scale, row, loc=SrcLoc("user.py", 2))
    plan = s.build()
    value = np.arange(12, dtype=np.float32).reshape(2, 6)
    expected = value.copy()
    expected[:, 1::2] += 2 * expected[:, ::2]
    execute(plan, {"n": 2, "X": value})
    np.testing.assert_array_equal(value, expected)


# Made by the core's own hash.h, which shares no code with the reference.
ONE = (0xADC47487ADDCCCDD, 0x36F5FA996BE0D2A0)
NEGATIVE = (0x79927A582CA57C43, 0xFC43374348DFB0B4)
NEST = (0x62A3AA39BAC07DE8, 0xA1D4C1AB59A978D0)

# --- task hash ----------------------------------------------------------------------------------


def test_hash_of_nothing() -> None:
    engine = engine_of(Sketch().build())
    assert engine.generate(()) == Generated(0, (0, 0))


def test_hash_of_one_task() -> None:
    s = Sketch()
    s.call(s.kernel("k", []), [])
    assert engine_of(s.build(), k=lambda: None).generate(()) == Generated(1, ONE)


def test_hash_of_negative_indices() -> None:
    s = Sketch()
    kernel = s.kernel("k", [])
    with s.loop("i", s.const(3), start=s.const(-2)):
        s.call(kernel, [])
    assert engine_of(s.build(), k=lambda: None).generate(()) == Generated(3, NEGATIVE)


def test_hash_of_a_nest() -> None:
    s = Sketch()
    x, y = s.tensor("X", 2), s.tensor("Y", 1)
    kernel = s.kernel("cell", [P("x", rank=1), out("y", rank=0)])
    c = s.const
    with s.loop("i", c(2)) as i, s.loop("j", c(3)) as j:
        start = s.op(ExprOp.MUL, c(2), j)
        s.call(kernel, [(x, [i, (start, c(2), c(3))]), (y, [i])])
    plan = s.build()
    values = {"X": np.zeros((2, 8), np.float32), "Y": np.zeros(2, np.float32)}
    engine = engine_of(plan, cell=lambda x, y: None)
    assert engine.generate(bindings_of(plan, values)) == Generated(6, NEST)
    strided = {**values, "X": np.zeros((8, 2), np.float32).T}
    assert engine.generate(bindings_of(plan, strided)).hash == NEST


# --- what is refused ----------------------------------------------------------------------------


def test_float_expressions_are_refused() -> None:
    s = Sketch()
    half = s.b.expr(ExprOp.CONST, type=ScalarType.F64, a=0, b=0x3FE00000)
    s.b.expr(ExprOp.NEG, type=ScalarType.F64, a=half)
    with pytest.raises(CompileError) as caught:
        ReferenceBackend().check(s.build())
    assert caught.value.message == (
        "the reference target does not run plans with the f64 expressions NEG"
    )


def test_instructions_of_another_version_are_refused() -> None:
    s = Sketch()
    s.b.emit(Op.BARRIER)
    with pytest.raises(CompileError) as caught:
        ReferenceBackend().check(s.build())
    assert caught.value.message == (
        "the reference target does not run plans with the instructions BARRIER"
    )


def test_features_of_another_version_are_refused() -> None:
    s = Sketch()
    kernel = s.kernel("k", [])
    tier = s.b.add(Tier(kernel=kernel))
    s.b.add(TierSet(name=s.b.string("variants"), tiers=tier, num_tiers=1))
    with pytest.raises(CompileError) as caught:
        ReferenceBackend().check(s.build())
    assert caught.value.message == (
        "the reference target does not run plans with the features TIER"
    )


def test_virtual_clock_is_refused() -> None:
    s = Sketch()
    s.b.directive(Directive.TRACE, [TracePolicy.CYCLES, 4], SrcLoc("user.py", 9))
    with pytest.raises(ScheduleError) as caught:
        ReferenceBackend().check(s.build())
    assert str(caught.value) == (
        "[PTO321] the reference target cannot enforce this trace policy\n"
        "  --> user.py:9\n"
        "  why: it has no virtual clock, only none() and timestamps()\n"
        '  fix: use TracePolicy.timestamps(), or target="cpu_sim"'
    )


# --- runs ---------------------------------------------------------------------------------------


def counting(directive: list[int] | None = None) -> Plan:
    s = Sketch()
    n, x = s.extent("n"), s.tensor("X", 1)
    kernel = s.kernel("visit", [P("x", rank=0)])
    with s.loop("i", n) as i:
        s.call(kernel, [(x, [i])])
    if directive is not None:
        s.b.directive(Directive.TRACE, directive)
    return s.build()


def test_stats() -> None:
    engine = engine_of(counting(), visit=lambda x: None)
    values = {"n": 5, "X": np.arange(5, dtype=np.float32)}
    run = engine.start(bindings_of(engine.plan, values), asynchronous=False)
    assert run.done()
    stats = run.stats()
    assert (stats.tasks, stats.generated, stats.bounds_checked) == (5, 5, 5)
    assert (stats.workers, stats.worker_tasks) == (1, (5,))
    assert stats.elapsed_ns > 0
    assert len(run.trace()) == 0
    assert stats.trace_dropped == 0


def test_trace() -> None:
    engine = engine_of(counting([TracePolicy.TIMESTAMPS, 3]), visit=lambda x: None)
    values = {"n": 5, "X": np.arange(5, dtype=np.float32)}
    run = engine.start(bindings_of(engine.plan, values), asynchronous=False)
    trace = run.trace()
    assert trace["task_id"].tolist() == [2, 3, 4]  # the ring keeps the last three
    assert trace["seq"].tolist() == [2, 3, 4]
    assert trace["kernel"].tolist() == ["visit"] * 3
    assert trace["indices"].tolist() == [[2], [3], [4]]
    times = np.stack([trace["start_ns"], trace["end_ns"]], axis=1).ravel()
    assert (np.diff(times.astype(np.int64)) >= 0).all()
    assert run.stats().trace_dropped == 2


def test_asynchronous_runs_queue_in_call_order() -> None:
    gate = threading.Event()
    seen: list[int] = []

    def visit(x: Array) -> None:
        assert gate.wait(60)
        seen.append(int(x[()]))

    engine = engine_of(counting(), visit=visit)

    def start(first: int, asynchronous: bool) -> Any:
        values = {"n": 2, "X": np.arange(first, first + 2, dtype=np.float32)}
        return engine.start(bindings_of(engine.plan, values), asynchronous=asynchronous)

    runs = [start(0, True), start(10, True)]
    assert not runs[0].wait(0.01)
    assert not runs[1].done()
    gate.set()
    runs.append(start(20, False))
    assert all(run.wait(60) for run in runs)
    assert seen == [0, 1, 10, 11, 20, 21]
    assert all(run.stats().tasks == 2 for run in runs)


def test_error_of_an_asynchronous_run_is_raised_by_wait() -> None:
    def visit(x: Array) -> None:
        raise RuntimeError("no")

    engine = engine_of(counting(), visit=visit)
    values = {"n": 2, "X": np.arange(2, dtype=np.float32)}
    run = engine.start(bindings_of(engine.plan, values), asynchronous=True)
    for _ in range(2):
        with pytest.raises(KernelError, match=r"kernel visit\[0\] failed: RuntimeError: no"):
            run.wait(60)
    later = engine.start(bindings_of(engine.plan, {**values, "n": 0}), asynchronous=True)
    assert later.wait(60)


def test_close_ends_runs_in_flight() -> None:
    entered = threading.Event()

    def visit(x: Array) -> None:
        entered.set()

    engine = engine_of(counting(), visit=visit)
    values = {"n": 10**7, "X": np.zeros(10**7, np.float32)}
    bindings = bindings_of(engine.plan, values)
    runs = [engine.start(bindings, asynchronous=True) for _ in range(2)]
    assert entered.wait(60)
    engine.close()
    engine.close()
    assert all(run.done() for run in runs)
    with pytest.raises(ExecutionError, match="the run was ended early: its program was closed"):
        runs[0].wait(None)
    assert not [t for t in threading.enumerate() if t.name == "pto_wsp-reference"]
