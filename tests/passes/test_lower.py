"""Lowering: the plan generates the tasks of the module, and says how many there will be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from pto_wsp import ir, plan
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError, ScheduleError
from pto_wsp.ir import AxisKind, Const, LoopVar, Mode, Order, SymbolRef
from pto_wsp.passes import lower
from pto_wsp.passes.simplify import Simplify
from tests.conftest import Golden
from tests.ir.interpreter import Bindings, tasks
from tests.ir.samples import SAMPLES, array, at, dense, dyn, extent, llama_attention, loc, ragged
from tests.ir.strategies import Case, cases
from tests.passes.plan_walk import PlanTask, Walker


def expected_tasks(module: ir.Module, bindings: Bindings) -> list[PlanTask]:
    return [
        PlanTask(
            t.kernel,
            plan.path_hash((0, *t.path)),
            t.loop_indices,
            t.indices,
            t.regions,
            tuple(s - (s >> 63 << 64) if s >= 0 else s for s in t.scalars),  # bits of f64
        )
        for t in tasks(module.body, bindings)
    ]


def check_tasks(case: Case) -> None:
    program = lower(case.module)
    program.validate()
    walker = Walker(program, case.bindings)
    assert walker.tasks() == expected_tasks(case.module, case.bindings)
    unknown = _may_be_unknown(case.module)
    for iteration in walker.iterations:
        if not unknown or iteration.body_tasks is not None:
            assert iteration.body_tasks == iteration.generated, iteration


def _may_be_unknown(module: ir.Module) -> bool:
    """Slots are not known before the run; sums of reductions may be too deep for the format."""
    forms = (ir.SlotSet, ir.While)
    exprs = (node for s in ir.walk(module.body) for e in ir.exprs(s) for node in ir.walk_expr(e))
    return any(isinstance(s, forms) for s in ir.walk(module.body)) or any(
        isinstance(node, ir.Reduce | ir.Search) for node in exprs
    )


@given(cases())
def test_plan_generates_the_tasks_of_the_module(case: Case) -> None:
    check_tasks(case)


@given(cases())
def test_simplified_module_has_the_same_tasks(case: Case) -> None:
    check_tasks(replace(case, module=Simplify().apply(case.module)))


@pytest.mark.soak
@given(cases())
def test_plan_generates_the_tasks_of_the_module_soak(case: Case) -> None:
    check_tasks(case)
    check_tasks(replace(case, module=Simplify().apply(case.module)))


@pytest.mark.parametrize("name", SAMPLES)
def test_disassembly(name: str, golden: Golden) -> None:
    golden.check(name, lower(SAMPLES[name]()).disassemble())


@pytest.mark.parametrize("name", SAMPLES)
def test_bytes_read_back_and_are_the_same_each_time(name: str) -> None:
    program = lower(SAMPLES[name]())
    again = plan.Plan.from_bytes(program.to_bytes())
    assert again.plan_id == program.plan_id
    assert lower(SAMPLES[name]()).to_bytes() == program.to_bytes()


# --- size ---


def test_llama_attention_is_small() -> None:
    assert lower(llama_attention()).task_bytes <= 4096


def test_only_default_constants_depend_on_defaults() -> None:
    first, second = lower(llama_attention(512)), lower(llama_attention(7))
    assert first.plan_id != second.plan_id
    for section in plan.Section:
        if section is not plan.Section.CONST:
            assert first.blob(section) == second.blob(section), section
    assert [c.bits for c in first.records(plan.Const)] == [512, 512]
    assert [c.bits for c in second.records(plan.Const)] == [7, 7]


def test_schedule_does_not_touch_the_task_set() -> None:
    module = llama_attention()
    other = lower(replace(module, schedule=(ir.Directive("READY", (1,)),)))
    assert other.plan_id == lower(module).plan_id
    assert other.schedule_id != lower(module).schedule_id


# --- tables ---


def only(records: tuple[plan.Symbol, ...], name: str, program: plan.Plan) -> plan.Symbol:
    (found,) = (r for r in records if program.string(r.name) == name)
    return found


def test_symbols() -> None:
    call = ir.Call("f", (ir.ArrayLoad("offsets", LoopVar("i")),), ())
    body = (dyn("i", "n", ragged("j", "lens", "i", call)),)
    symbols = (extent("n", 3), array("lens"), array("offsets"), array("small", DType.U8))
    kernel = ir.KernelDecl("f", (), ir.BodyForm.PYTHON, "m.f")
    tensors = (ir.TensorDecl("X", DType.BF16, 2),)
    program = lower(ir.Module("m", symbols, tensors, (kernel,), body))
    records = program.records(plan.Symbol)
    found = {
        program.string(r.name): (r.kind, r.dtype, r.rank, r.min_value, r.max_value) for r in records
    }
    largest = 2**63 - 1
    assert found == {
        "n": (plan.SymbolKind.EXTENT, DType.I64, 0, 0, largest),
        "lens": (plan.SymbolKind.ARRAY, DType.I32, 1, 0, largest),
        "offsets": (plan.SymbolKind.ARRAY, DType.I32, 1, -(2**31), 2**31 - 1),
        "small": (plan.SymbolKind.ARRAY, DType.U8, 1, 0, 255),
        "X": (plan.SymbolKind.TENSOR, DType.BF16, 2, 0, 0),
    }
    (tensor,) = program.records(plan.Tensor)
    assert records[tensor.symbol] == only(records, "X", program)
    assert [d.shape for d in program.records(plan.Dim)] == [plan.NONE] * 2


def test_written_tensors_are_marked() -> None:
    program = lower(SAMPLES["ragged_attention"]())
    records = program.records(plan.Symbol)
    marks = {name: only(records, name, program).flags for name in ("Q", "KV", "O")}
    assert marks == {"Q": 0, "KV": 0, "O": 1}


def test_ragged_axis_names_its_parent() -> None:
    program = lower(SAMPLES["ragged_attention"]())
    outer, lens, blocks = program.records(plan.Axis)
    assert (outer.parent, lens.parent, blocks.parent) == (plan.NONE, 0, 1)
    names = [program.string(program.records(plan.Symbol)[a.lengths].name) for a in (lens, blocks)]
    assert names == ["lens", "blocks"]
    assert [a.level for a in (outer, lens, blocks)] == [0, 1, 2]
    assert plan.Feature.RAGGED in program.features


def test_kernel_bodies_and_signatures() -> None:
    program = lower(SAMPLES["cpp"]())
    step, total = program.records(plan.Kernel)
    assert step.name_hash == plan.name_hash("step")
    tensor, f32 = plan.ParamKind.TENSOR, DType.F32
    signature = [("a", tensor, f32, 1, 1), ("out", tensor, f32, 2, 1)]
    assert step.abi_hash == total.abi_hash == plan.abi_hash(signature)
    body = program.body(0)
    assert body is not None
    assert body.data == b'{"includes":[],"source":"out[0] = a[0] + 1.0f;"}'
    body = program.body(1)
    assert body is not None
    assert body.data.startswith(b'{"includes":["<cmath>","\\"my.h\\""],"source":"\\nfloat s')
    python = lower(SAMPLES["wave"]()).body(0)
    assert python is not None
    assert (python.form, python.data) == (plan.BodyForm.PYTHON, b"model.cell")


def test_positions_reach_the_plan() -> None:
    program = lower(SAMPLES["wave"]())
    section = plan.Section
    assert program.loc(section.SITE, 0) == loc(9, 9, 72)
    assert program.loc(section.AXIS, 1) == loc(8, 5, 9)
    assert program.loc(section.SYMBOL, 0) == loc(7)
    assert program.loc(section.SYMBOL, 2) == loc(1)
    assert program.loc(section.TENSOR, 0) == loc(1)
    assert program.loc(section.KERNEL, 0) == loc(3, 1, 20)
    assert program.loc(section.KERNEL_BODY, 0) == loc(3, 1, 20)
    assert program.loc(section.SCHEDULE, 0) == loc(12, 5, 40)


# --- counts ---

CALL = ir.Call("f", (), ())
KERNEL = ir.KernelDecl("f", (), ir.BodyForm.PYTHON, "m.f")


def counting(*body: ir.Stmt, symbols: tuple[ir.SymbolDecl, ...] = ()) -> plan.Plan:
    return lower(ir.Module("m", symbols, (), (KERNEL,), body))


def test_constant_counts_are_folded() -> None:
    program = counting(dense("a", 2, CALL, dense("b", 3, CALL, CALL), dense("c", 0, CALL)))
    counts = [program.records(plan.Expr)[a.body_tasks] for a in program.records(plan.Axis)]
    assert [(c.op, c.a) for c in counts] == [
        (plan.ExprOp.CONST, 7),
        (plan.ExprOp.CONST, 2),
        (plan.ExprOp.CONST, 1),
    ]


def test_branches_with_as_many_tasks_count_the_same() -> None:
    """Which of them is taken need not be known, as between tiers."""
    short = ir.Binary(ir.BinaryOp.LT, LoopVar("a"), Const(1))
    tiers = ir.Cond(short, (CALL,), (ir.Cond(short, (CALL,), (CALL,)),))
    program = counting(dense("a", 3, dense("b", 4, tiers)))
    counts = [program.records(plan.Expr)[a.body_tasks] for a in program.records(plan.Axis)]
    assert [(c.op, c.a) for c in counts] == [(plan.ExprOp.CONST, 4), (plan.ExprOp.CONST, 1)]


def test_counts_beyond_64_bits_are_left_to_the_run() -> None:
    huge = 2**62
    program = counting(dense("a", 2, dense("b", huge, dense("c", huge, CALL)), CALL))
    outer = program.records(plan.Axis)[0]
    walker = Walker(program, Bindings())
    assert walker.value(outer.body_tasks, (0,)) == huge * huge + 1
    program = counting(dense("a", 2, dense("b", huge, CALL), dense("c", huge, CALL)))
    walker = Walker(program, Bindings())
    assert walker.value(program.records(plan.Axis)[0].body_tasks, (0,)) == 2 * huge


def triangle(depth: int, start: int = 0) -> ir.Loop:
    """Loops that each run as long as the one around them says: the count needs nested sums."""
    inner: tuple[ir.Stmt, ...] = (CALL,)
    for level in range(depth, 0, -1):
        extent = LoopVar(f"v{level - 1}")
        axis = AxisKind.EXPR
        inner = (ir.Loop(f"v{level}", "t", axis, Order.PARALLEL, Const(start), extent, inner),)
    return dyn("v0", "n", *inner)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("start", [0, 1])
def test_sums_inside_sums(depth: int, start: int) -> None:
    module = ir.Module("m", (extent("n"),), (), (KERNEL,), (triangle(depth, start),))
    check_tasks(Case(module, Bindings(extents={"n": 4})))


def test_count_that_varies_by_a_start_alone() -> None:
    """j starts at i, so the extents of k differ between iterations of i, and o must add them up."""
    inner = ir.Loop("k", "k", AxisKind.EXPR, Order.PARALLEL, Const(0), LoopVar("j"), (CALL,))
    shifted = ir.Loop("j", "j", AxisKind.DENSE, Order.PARALLEL, LoopVar("i"), Const(2), (inner,))
    module = ir.Module("m", (), (), (KERNEL,), (dense("o", 2, dense("i", 3, shifted)),))
    check_tasks(Case(module, Bindings()))


def test_count_too_deep_for_the_format_is_unknown() -> None:
    program = counting(triangle(6), symbols=(extent("n"),))
    unknown = [a.body_tasks == plan.NONE for a in program.records(plan.Axis)]
    assert unknown == [True, False, False, False, False, False, False]


def test_many_terms_make_a_flat_sum() -> None:
    loops = tuple(dyn(f"j{i}", "n", CALL) for i in range(300))
    program = counting(dyn("i", "n", *loops), symbols=(extent("n"),))
    walker = Walker(program, Bindings(extents={"n": 2}))
    assert walker.value(program.records(plan.Axis)[0].body_tasks, (0,)) == 600


# --- limits and errors ---


def test_largest_legal_modules_are_valid_plans() -> None:
    nest: tuple[ir.Stmt, ...] = (CALL,)
    for level in range(16):
        nest = (dyn(f"v{level}", "n", *nest),)
    counting(*nest, symbols=(extent("n"),)).validate()

    block: ir.Stmt = CALL
    for _ in range(48):
        block = ir.Sequential(((block,),))
    counting(block).validate()

    pairs: ir.Stmt = CALL
    for _ in range(24):
        pairs = ir.Combine(((pairs, CALL),))
    counting(pairs).validate()

    high: ir.Expr = SymbolRef("n")
    for _ in range(63):
        high = ir.Binary(ir.BinaryOp.ADD, high, Const(1))
    counting(replace(CALL, indices=(high,)), symbols=(extent("n"),)).validate()


def test_widest_call_is_a_valid_plan() -> None:
    params = tuple(ir.ParamDecl(f"p{i}", Mode.IN, DType.F32, 0) for i in range(64))
    kernel = ir.KernelDecl("g", params, ir.BodyForm.PYTHON, "m.g")
    regions = (ir.Region("X", (at(0),) * 8),) * 64
    call = ir.Call("g", (Const(-1),) * 96, regions)
    tensors = (ir.TensorDecl("X", DType.F32, 8),)
    lower(ir.Module("m", (), tensors, (kernel,), (call,))).validate()


def test_constant_indices_keep_their_sign() -> None:
    program = counting(replace(CALL, indices=(Const(-3), Const(2**63 - 1), Const(-(2**63)))))
    (task,) = Walker(program, Bindings()).tasks()
    assert task.indices == (-3, 2**63 - 1, -(2**63))


def test_module_without_tasks() -> None:
    program = lower(ir.Module("m", (), (), (), ()))
    assert [i.opcode for i in program.records(plan.Instr)] == [plan.Op.HALT]


def test_illegal_module_is_refused() -> None:
    with pytest.raises(CompileError, match="kernel 'f' is not declared"):
        lower(ir.Module("m", (), (), (), (CALL,)))


def test_unknown_directive() -> None:
    directive = ir.Directive("FASTER", (1,), loc(4))
    with pytest.raises(ScheduleError, match="there is no schedule directive 'FASTER'") as caught:
        lower(ir.Module("m", (), (), (), (), (directive,)))
    assert caught.value.loc == loc(4)
