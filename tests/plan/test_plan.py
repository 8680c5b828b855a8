"""Plans as values: bytes, ids, schedules, positions, bodies, text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pto_wsp.errors import PlanError
from pto_wsp.plan import (
    Axis,
    BodyForm,
    Directive,
    Expr,
    ExprOp,
    Feature,
    Instr,
    Op,
    Plan,
    Section,
    SymbolKind,
)
from pto_wsp.plan.container import decode
from pto_wsp.srcloc import SrcLoc
from tests.conftest import Golden
from tests.plan import samples
from tests.plan.draft import Draft
from tests.plan.writer import Writer


@pytest.fixture(params=list(samples.ALL))
def sample(request: pytest.FixtureRequest) -> Plan:
    return samples.ALL[request.param]()


def test_round_trip(sample: Plan) -> None:
    again = Plan.from_bytes(sample.to_bytes())
    assert again == sample
    assert again.plan_id == sample.plan_id
    assert again.features == sample.features
    assert again.disassemble() == sample.disassemble()
    for section in Section:
        if section.name not in (
            "STRING",
            "SCHEDULE_STRING",
            "KERNEL_BYTES",
            "DEBUG_STRING",
            "DEPS_STRING",
        ):
            assert again.section(section) == sample.section(section)


def test_disassembly(sample: Plan, golden: Golden) -> None:
    golden.check(None, sample.disassemble())


def test_samples_use_every_section_and_every_opcode() -> None:
    plans = [make() for make in samples.ALL.values()]
    sections = {kind for plan in plans for kind in decode(plan.to_bytes()).sections}
    assert sections == set(Section)
    opcodes = {instr.opcode for plan in plans for instr in plan.records(Instr)}
    never = {o for o in Op if o.name.startswith(("AXIS_", "DEVICE_"))} | {Op.DISPATCH_FILTER}
    assert opcodes == set(Op) - never
    features = {feature for plan in plans for feature in plan.features}
    assert features == set(Feature)


def test_bytes_of_a_tiny_plan(golden: Golden) -> None:
    """Nobody changes the format without meaning to."""
    data = samples.tiny().to_bytes()
    rows = [data[i : i + 16].hex(" ") for i in range(0, len(data), 16)]
    golden.check(None, "\n".join(rows) + "\n")


def test_save_and_load(tmp_path: Path) -> None:
    plan = samples.dense()
    plan.save(tmp_path / "wave.ptow")
    loaded = Plan.load(tmp_path / "wave.ptow")
    assert loaded == plan
    assert loaded.to_bytes()[:4] == b"PTOW"
    loaded.validate()
    assert pickle.loads(pickle.dumps(loaded)) == plan


def test_accessors() -> None:
    plan = samples.dense()
    assert plan.kernel_names == ("cell",)
    assert [plan.string(axis.name) for axis in plan.records(Axis)] == ["rows", "cols"]
    assert plan.records(Expr, Section.SCHEDULE_EXPR) == ()
    body = plan.body(0)
    assert body is not None
    assert body.form is BodyForm.CPP
    assert b"out[0]" in body.data
    assert samples.tiny().body(0) is None
    assert repr(plan).endswith("bytes: cell>")


def test_task_bytes_leaves_out_bodies_and_positions() -> None:
    plan = samples.dense()
    bare = Draft(plan)
    for section in (Section.KERNEL_BODY, Section.KERNEL_BYTES, Section.DEBUG_LINE):
        bare.drop(section)
    bare.drop(Section.DEBUG_STRING)
    assert plan.task_bytes == len(bare.seal()) < len(plan.to_bytes())


def test_positions_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside = SrcLoc(str(tmp_path / "models" / "wave.py"), 7, 3, 9)
    outside = SrcLoc("/elsewhere/lib.py", 9)
    w = Writer()
    with w.entry():
        w.item(Op.NOP)
    w.debug(Section.ENTRY, 0, inside)
    w.debug(Section.CODE, 0, outside)
    w.debug(Section.CODE, 1, None)
    plan = w.build()
    assert plan.loc(Section.ENTRY, 0) == inside
    loaded = Plan.from_bytes(plan.to_bytes())
    assert loaded.loc(Section.ENTRY, 0) == SrcLoc("models/wave.py", 7, 3, 9)
    assert loaded.loc(Section.CODE, 0) == SrcLoc("lib.py", 9)
    assert loaded.loc(Section.CODE, 1) is None


def test_plan_id_ignores_schedule_bodies_and_positions() -> None:
    plan = samples.dense()
    bare = Draft(plan)
    for section in tuple(bare.sections):
        if section >= Section.SCHEDULE:
            bare.drop(Section(section))
    other = Plan.from_bytes(bare.seal())
    assert other.plan_id == plan.plan_id
    assert other.schedule_id != plan.schedule_id
    assert samples.ragged().plan_id != plan.plan_id


def test_ids_ignore_proofs() -> None:
    plan = samples.tiers()
    bare = Draft(plan)
    for section in (Section.DEPS, Section.DEPS_DISTANCE, Section.DEPS_STRING):
        bare.drop(section)
    other = Plan.from_bytes(bare.seal())
    assert (other.plan_id, other.schedule_id) == (plan.plan_id, plan.schedule_id)


def test_places_belong_to_the_schedule() -> None:
    plan = samples.channels()
    bare = Plan.from_bytes(Draft(plan).drop(Section.PLACE).seal())
    assert bare.plan_id == plan.plan_id
    assert bare.schedule_id != plan.schedule_id
    assert bare.with_schedule_of(plan) == plan


def test_a_default_is_part_of_the_plan_id() -> None:
    other = Draft(samples.dense()).set(Section.CONST, 0, bits=9)
    assert Plan.from_bytes(other.seal()).plan_id != samples.dense().plan_id


def test_schedule_swap_keeps_the_plan_id() -> None:
    w = Writer()
    with w.entry():
        w.item(Op.NOP)
    w.directive(Directive.START, [1], SrcLoc("other.py", 5))
    key = w.schedule_expr(ExprOp.TASK_ORDINAL)
    w.directive(Directive.READY, [3, key])
    donor = w.build()
    plan = samples.dense()
    swapped = plan.with_schedule_of(donor)
    assert swapped.plan_id == plan.plan_id
    assert swapped.schedule_id == donor.schedule_id
    assert swapped.body(0) == plan.body(0)
    assert swapped.loc(Section.SITE, 0) == plan.loc(Section.SITE, 0)
    assert swapped.loc(Section.SCHEDULE, 0) == SrcLoc("other.py", 5)
    assert swapped.loc(Section.SCHEDULE, 1) is None
    assert swapped.with_schedule_of(plan) == plan


def test_schedule_swap_refuses_other_symbols() -> None:
    w = Writer()
    with w.entry():
        w.item(Op.NOP)
    width = w.symbol("width", SymbolKind.EXTENT)
    w.directive(Directive.READY, [3, w.schedule_expr(ExprOp.SYMBOL, a=width)])
    with pytest.raises(PlanError, match="reads 'width'"):
        samples.dense().with_schedule_of(w.build())


def test_schedule_swap_refuses_other_places() -> None:
    with pytest.raises(PlanError, match="places site 2"):
        samples.dense().with_schedule_of(samples.channels())
    other = Draft(samples.channels())
    name = other.get(Section.CHANNEL, 0, "name")
    renamed = Plan.from_bytes(other.set(Section.MESH, 0, name=name).seal())
    with pytest.raises(PlanError, match="uses mesh 'devices'"):
        renamed.with_schedule_of(samples.channels())


@pytest.mark.parametrize(
    ("offset", "message"), [(40, "the plan id is not"), (56, "the schedule id is not")]
)
def test_wrong_ids_are_refused(offset: int, message: str) -> None:
    data = bytearray(samples.dense().to_bytes())
    data[offset] ^= 1
    with pytest.raises(PlanError, match=message) as error:
        Plan.from_bytes(_reseal_header(bytes(data)))
    assert error.value.offset == offset


def test_wrong_body_hash_is_refused() -> None:
    draft = Draft(samples.dense()).set(Section.KERNEL_BODY, 0, hash_lo=1)
    with pytest.raises(PlanError, match="the body of kernel 'cell'") as error:
        Plan.from_bytes(draft.seal())
    assert error.value.offset == draft.offset(Section.KERNEL_BODY)


def test_equal_bodies_are_stored_once() -> None:
    plan = samples.tiers()
    assert plan.body(0) == plan.body(1)
    assert plan.blob(Section.KERNEL_BYTES) == b"body"


def test_builder_refuses_what_does_not_fit() -> None:
    w = Writer()
    with pytest.raises(PlanError, match="does not fit into 64 bits"):
        w.const(2**63)
    with pytest.raises(PlanError, match="too long for a plan"):
        w.string("x" * 70000)
    with w.entry():
        w.item(Op.NOP, operand1=1 << 16)
    with pytest.raises(PlanError, match="does not fit its layout"):
        w.build()


def test_builder_shares_strings_and_nodes() -> None:
    w = Writer()
    assert w.string("a") == w.string("a") != w.string("b")
    assert w.const(-5) == w.const(-5) != w.const(5)
    assert w.schedule_const(3) == w.schedule_const(3)


def _reseal_header(data: bytes) -> bytes:
    import zlib

    out = bytearray(data)
    sections = int.from_bytes(data[24:28], "little")
    out[28:32] = bytes(4)
    out[28:32] = zlib.crc32(out[: 80 + 32 * sections]).to_bytes(4, "little")
    return bytes(out)
