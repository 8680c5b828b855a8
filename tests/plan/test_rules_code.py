"""One test per rule about code, loops and sites."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    MAX_ARG_WORDS,
    MAX_BLOCKS,
    MAX_LOOPS,
    NONE,
    AccessMode,
    After,
    Alloc,
    Axis,
    AxisKind,
    Const,
    Dim,
    Entry,
    ExprOp,
    Op,
    ParamKind,
    ScalarType,
    Section,
    Site,
    Storage,
    StorageClass,
    SymbolKind,
    TaskKind,
    Tensor,
)
from tests.plan import samples
from tests.plan.draft import Draft, Rule, fault_of, refuses
from tests.plan.writer import P, Writer, io, var

S = Section
BIG = 1 << 20

# dense: 0 for, 1 for, 2 task, 3..7 words, 8 end, 9 end, 10 halt
CODE = [
    Rule("unknown", samples.dense, lambda d: d.set(S.CODE, 9, opcode=0x66),
         "unknown opcode 102", (S.CODE, 9, None)),
    Rule("axis_opcode", samples.dense, lambda d: d.set(S.CODE, 0, opcode=Op.AXIS_DENSE),
         "AXIS_DENSE: operand2 is 10 and must be 0", (S.CODE, 0, None)),
    Rule("device", samples.dense, lambda d: d.set(S.CODE, 8, opcode=Op.DEVICE_FIRST),
         "DEVICE_FIRST does not stand in CODE", (S.CODE, 8, None)),
    Rule("directive", samples.dense, lambda d: d.set(S.CODE, 8, opcode=Op.DISPATCH_FILTER),
         "DISPATCH_FILTER does not stand in CODE", (S.CODE, 8, None)),
    Rule("operand_zero", samples.dense, lambda d: d.set(S.CODE, 8, operand2=3),
         "END: operand2 is 3 and must be 0", (S.CODE, 8, None)),
    Rule("operand_axis", samples.dense, lambda d: d.set(S.CODE, 0, operand1=2),
         "PARALLEL_FOR: operand1 is 2, which does not exist", (S.CODE, 0, None)),
    Rule("operand_pc", samples.dense, lambda d: d.set(S.CODE, 0, operand2=12),
         "PARALLEL_FOR: operand2 is 12, which does not exist", (S.CODE, 0, None)),
    Rule("operand_word", samples.dense, lambda d: d.set(S.CODE, 5, operand2=BIG),
         "IO_INPUT has an operand that does not exist", (S.CODE, 5, None)),
    Rule("block_end", samples.dense, lambda d: d.set(S.CODE, 1, operand2=10),
         "operand2 says that it ends at 10, but it ends at 9", (S.CODE, 8, None)),
    Rule("halt_inside", samples.dense, lambda d: d.set(S.CODE, 8, opcode=Op.HALT),
         "HALT inside a block", (S.CODE, 8, None)),
    Rule("end_outside", samples.dense, lambda d: d.set(S.CODE, 10, opcode=Op.END),
         "END without an open block", (S.CODE, 10, None)),
    Rule("no_halt", samples.dense, lambda d: d.set(S.CODE, 10, opcode=Op.NOP),
         "the entry does not end with HALT", (S.CODE, 11, None)),
    Rule("stray_word", samples.dense, lambda d: d.set(S.CODE, 2, operand1=4),
         "the task has no argument word for parameter 'out'", (S.CODE, 6, None)),
    Rule("missing_word", samples.dense, lambda d: d.set(S.CODE, 2, operand1=6),
         "a TASK is followed by fewer argument words", (S.CODE, 8, None)),
    Rule("words_past_end", samples.dense, lambda d: d.set(S.CODE, 2, operand1=9),
         "the argument words of a TASK reach past the end of CODE", (S.CODE, 2, None)),
    Rule("word_alone", samples.dense, lambda d: d.set(S.CODE, 9, opcode=Op.PARAM_LOOPVAR),
         "PARAM_LOOPVAR stands only behind the instruction", (S.CODE, 9, None)),
    Rule("word_mode", samples.dense, lambda d: d.set(S.CODE, 5, opcode=Op.IO_OUTPUT),
         "does not fit the mode of parameter 'up'", (S.CODE, 5, None)),
    Rule("word_access_mode", samples.dense, lambda d: d.set(S.CODE, 5, operand2=2),
         "names an access of another mode than parameter 'up'", (S.CODE, 5, None)),
    Rule("word_loop", samples.dense, lambda d: d.set(S.CODE, 4, operand1=2),
         "PARAM_LOOPVAR names a loop that does not enclose the task", (S.CODE, 4, None)),
    Rule("word_rank", samples.dense, lambda d: d.set(S.ACCESS_DIM, 0, flags=0),
         "names a region of another rank than parameter 'up' sees", (S.CODE, 5, None)),
    Rule("children", samples.tiers, lambda d: d.set(S.CODE, 2, operand1=3),
         "the block announced 3 children and has 2", (S.CODE, 16, None)),
    Rule("children_combine", samples.tiers, lambda d: d.set(S.CODE, 7, operand1=1),
         "the block announced 1 children and has 2", (S.CODE, 15, None)),
    Rule("cond_ext", samples.sparse, lambda d: d.set(S.CODE, 4, opcode=Op.NOP, operand2=0),
         "COND must be followed by an EXT word", (S.CODE, 3, None)),
    Rule("cond_type", samples.sparse, lambda d: d.set(S.CODE, 4, operand2=0),
         "the condition must be of type BOOL, not I64", (S.CODE, 4, None)),
    Rule("ext_operand", samples.sparse, lambda d: d.set(S.CODE, 4, operand1=1),
         "EXT: operand1 is 1 and must be 0", (S.CODE, 4, None)),
    Rule("ext_missing", samples.sparse, lambda d: d.set(S.CODE, 4, operand2=BIG),
         "EXT: operand2 is 1048576, which does not exist", (S.CODE, 4, None)),
    Rule("select_dense", samples.dense, lambda d: d.set(S.CODE, 0, opcode=Op.SELECT),
         "SELECT loops over SPARSE axes", (S.CODE, 0, None)),
    Rule("for_sparse", samples.sparse, lambda d: d.set(S.CODE, 1, opcode=Op.FOR_EACH),
         "SELECT loops over SPARSE axes", (S.CODE, 1, None)),
    Rule("break", samples.channels, lambda d: d.set(S.CODE, 11, operand1=0),
         "BREAK leaves a LOOP_WHILE that does not enclose it", (S.CODE, 11, None)),
    Rule("call_back", samples.channels, lambda d: d.set(S.CODE, 7, operand2=1),
         "CALL must go to an entry with a higher number", (S.CODE, 7, None)),
    Rule("call_process", samples.channels, lambda d: d.set(S.CODE, 7, operand2=2),
         "a process's entry cannot be called", (S.ENTRY, 2, None)),
    Rule("not_called", samples.channels,
         lambda d: d.set(S.CODE, 7, opcode=Op.NOP, operand2=0),
         "nothing calls this entry", (S.ENTRY, 3, None)),
    Rule("entry_gap", samples.channels, lambda d: d.set(S.ENTRY, 1, pc=3),
         "entries must follow each other without gaps; this one begins at 2", (S.ENTRY, 1, None)),
    Rule("send_channel", samples.channels, lambda d: d.set(S.PROCESS, 0, num_produces=0),
         "ROOM uses a channel that its process does not produce", (S.CODE, 14, None)),
    Rule("slot_load_mode", samples.channels, lambda d: d.set(S.ACCESS, 0, mode=AccessMode.INOUT),
         "SLOT_LOAD needs an access that only reads", (S.CODE, 4, None)),
    Rule("slot_load_region", samples.channels, lambda d: d.set(S.ACCESS_DIM, 0, flags=0),
         "SLOT_LOAD needs a region of one element", (S.CODE, 4, None)),
    Rule("slot_scope", samples.channels, lambda d: d.set(S.SLOT, 0, level=2),
         "SLOT_LOAD sets a slot outside its scope", (S.CODE, 3, None)),
    Rule("alloc_level", samples.tiers, lambda d: d.set(S.ALLOC, 0, level=0),
         "ALLOC does not stand at the level of its record", (S.CODE, 1, None)),
    Rule("temp_without_alloc", samples.tiers, lambda d: d.set(S.CODE, 1, opcode=Op.NOP),
         "the region lies in a temporary or a message that is not there", (S.CODE, 6, None)),
    Rule("free_twice", samples.tiers, lambda d: d.set(S.CODE, 18, opcode=Op.FREE),
         "FREE does not stand in the block of its ALLOC", (S.CODE, 18, None)),
    Rule("alloc_twice", samples.tiers, lambda d: d.set(S.CODE, 8, opcode=Op.ALLOC),
         "ALLOC takes a buffer that is already there", (S.CODE, 8, None)),
]  # fmt: skip

SITES = [
    Rule("pc", samples.dense, lambda d: d.set(S.SITE, 0, pc=3),
         "TASK and the pc of its site do not name each other", (S.CODE, 2, None)),
    Rule("pc_outside", samples.dense, lambda d: d.set(S.SITE, 0, pc=11),
         "Site.pc lies outside CODE", (S.SITE, 0, "pc")),
    Rule("pc_twice", samples.sparse, lambda d: d.set(S.SITE, 1, pc=5),
         "two sites have the same pc", (S.SITE, 1, "pc")),
    Rule("level", samples.dense, lambda d: d.set(S.SITE, 0, level=1),
         "Site.level is 1, but 2 loops enclose it", (S.SITE, 0, "level")),
    Rule("path", samples.dense, lambda d: d.set(S.SITE, 0, path_hash=1),
         "Site.path_hash is not that of its place", (S.SITE, 0, "path_hash")),
    Rule("kind", samples.dense, lambda d: d.set(S.SITE, 0, kind=TaskKind.LOAD),
         "Site.kind does not fit TASK", (S.SITE, 0, "kind")),
    Rule("axis", samples.dense, lambda d: d.set(S.SITE, 0, axis=0),
         "Site.axis is not the innermost axis around it", (S.SITE, 0, "axis")),
    Rule("axis_none", samples.dense, lambda d: d.set(S.SITE, 0, axis=NONE),
         "Site.axis is not the innermost axis around it", (S.SITE, 0, "axis")),
    Rule("axis_of_recv", samples.channels, lambda d: d.set(S.SITE, 2, axis=0),
         "Site.axis is not the innermost axis around it", (S.SITE, 2, "axis")),
    Rule("axis_of_call", samples.channels, lambda d: d.set(S.SITE, 3, axis=NONE),
         "Site.axis is not the innermost axis around it", (S.SITE, 3, "axis")),
    Rule("level_of_recv", samples.channels, lambda d: d.set(S.SITE, 2, level=0),
         "Site.level is 0, but 1 loops enclose it", (S.SITE, 2, "level")),
    Rule("no_callee", samples.dense, lambda d: d.set(S.SITE, 0, kernel=NONE),
         "KERNEL sites have a kernel or a tier set", (S.SITE, 0, "kernel")),
    Rule("two_callees", samples.tiers, lambda d: d.set(S.SITE, 0, kernel=0),
         "KERNEL sites have a kernel or a tier set", (S.SITE, 0, "kernel")),
    Rule("collective_kernel", samples.channels, lambda d: d.set(S.SITE, 3, kernel=NONE),
         "COLLECTIVE a kernel", (S.SITE, 3, "kernel")),
    Rule("load_kernel", samples.channels, lambda d: d.set(S.SITE, 0, kernel=0),
         "LOAD neither", (S.SITE, 0, "kernel")),
    Rule("load_site", samples.channels, lambda d: d.set(S.SITE, 0, kind=TaskKind.COLLECTIVE),
         "Site.kind does not fit SLOT_LOAD", (S.SITE, 0, "kind")),
    Rule("load_word", samples.channels, lambda d: d.set(S.CODE, 4, opcode=Op.IO_OUTPUT),
         "SLOT_LOAD must be followed by an IO_INPUT word", (S.CODE, 3, None)),
    Rule("load_operand", samples.channels, lambda d: d.set(S.CODE, 4, operand2=BIG),
         "IO_INPUT has an operand that does not exist", (S.CODE, 4, None)),
    Rule("load_other_site", samples.channels, lambda d: d.set(S.CODE, 3, operand2=1),
         "SLOT_LOAD and the pc of its site do not name each other", (S.CODE, 3, None)),
    Rule("collective_words", samples.channels, lambda d: d.set(S.CODE, 33, operand1=3),
         "a COLLECTIVE is followed by fewer argument words", (S.CODE, 36, None)),
    Rule("collective_mode", samples.channels, lambda d: d.set(S.CODE, 35, opcode=Op.IO_INPUT),
         "does not fit the mode of parameter 'x'", (S.CODE, 35, None)),
]  # fmt: skip

AXES = [
    Rule("level", samples.dense, lambda d: d.set(S.AXIS, 1, level=0),
         "Axis.level is 0, but 1 loops enclose it", (S.AXIS, 1, "level")),
    Rule("outer", samples.dense, lambda d: d.set(S.AXIS, 1, outer=NONE),
         "Axis.outer is not the next axis around it", (S.AXIS, 1, "outer")),
    Rule("outer_of_first", samples.dense, lambda d: d.set(S.AXIS, 0, outer=1),
         "Axis.outer is not the next axis around it", (S.AXIS, 0, "outer")),
    Rule("reserved", samples.dense, lambda d: d.set(S.AXIS, 0, reserved=1),
         "Axis.reserved is reserved and must be 0", (S.AXIS, 0, "reserved")),
    Rule("shared", samples.dense, lambda d: d.set(S.CODE, 1, operand1=0),
         "another loop uses the same axis record", (S.CODE, 1, None)),
    Rule("dense", samples.dense, lambda d: d.set(S.AXIS, 0, kind=AxisKind.DENSE),
         "axis 'rows' is DENSE and needs a constant extent", (S.AXIS, 0, "extent")),
    Rule("dense_dyn", samples.ragged, lambda d: d.set(S.AXIS, 2, kind=AxisKind.DENSE_DYN),
         "axis 'tokens' has a field that its kind lacks", (S.AXIS, 2, "parent")),
    Rule("ragged_extent", samples.ragged, lambda d: d.set(S.AXIS, 2, parent=0),
         "is RAGGED and needs the extent lengths[parent]", (S.AXIS, 2, "extent")),
    Rule("ragged_parent", samples.ragged, lambda d: d.set(S.AXIS, 2, parent=2),
         "has a parent that is not a loop around it", (S.AXIS, 2, "parent")),
    Rule("ragged_lengths", samples.ragged, lambda d: d.set(S.AXIS, 2, lengths=0),
         "needs an array of rank 1", (S.AXIS, 2, "lengths")),
    Rule("ragged_field", samples.ragged, lambda d: d.set(S.AXIS, 2, lengths=NONE),
         "axis 'tokens' lacks a field that its kind needs", (S.AXIS, 2, "lengths")),
    Rule("sparse_extent", samples.sparse, lambda d: d.set(S.AXIS, 1, extent=0),
         "is SPARSE and needs the extent indptr[row + 1] - indptr[row]", (S.AXIS, 1, "extent")),
    Rule("sparse_value", samples.sparse, lambda d: d.set(S.AXIS, 1, value=0),
         "is SPARSE and needs the value indices[indptr[row] + index]", (S.AXIS, 1, "value")),
    Rule("sparse_indices", samples.sparse, lambda d: d.set(S.AXIS, 1, indices=3),
         "needs an array of rank 1", (S.AXIS, 1, "indices")),
    Rule("padded", samples.dense, lambda d: d.set(S.AXIS, 0, flags=1),
         "axis 'rows' is padded and not TILED", (S.AXIS, 0, "flags")),
    Rule("tile", samples.dense, lambda d: d.set(S.AXIS, 0, tile=0),
         "axis 'rows' has a field that its kind lacks", (S.AXIS, 0, "tile")),
    Rule("tiled", samples.dense, lambda d: d.set(S.AXIS, 0, kind=AxisKind.TILED),
         "axis 'rows' lacks a field that its kind needs", (S.AXIS, 0, "tile")),
]  # fmt: skip


@pytest.mark.parametrize("rule", [*CODE, *SITES, *AXES], ids=lambda rule: rule.name)
def test_rule(rule: Rule) -> None:
    rule.check()


def test_a_plan_has_an_entry() -> None:
    w = Writer()
    w.emit(Op.HALT)
    assert fault_of(w.encode()) == (80, "the plan has no entry")
    w = Writer()
    w.add(Entry(pc=0))
    assert fault_of(w.encode()) == (80, "the entry does not end with HALT")


def test_nothing_stands_outside_entries() -> None:
    w = Writer()
    with w.entry():
        pass
    w.emit(Op.HALT)
    refuses(w, "the instruction belongs to no entry", S.CODE, 1)


def test_axes_and_sites_are_used() -> None:
    w = Writer()
    with w.entry():
        pc = w.item(Op.NOP)
    w.add(Site(pc=pc, level=0, kind=TaskKind.LOAD, path_hash=0))
    refuses(w, "Site.pc names no instruction of its kind", S.SITE, 0, "pc")
    draft = Draft(samples.tiny())
    draft.data(S.AXIS, draft.sections[S.AXIS].data * 2)
    offset, message = fault_of(draft.seal())
    assert message == "no loop uses this axis record"
    assert offset == draft.offset(S.AXIS, 1)


def test_blocks_have_a_limit() -> None:
    for depth in (MAX_BLOCKS, MAX_BLOCKS + 1):
        w = Writer()
        with w.entry(), ExitStack() as stack:
            for _ in range(depth):
                stack.enter_context(w.block(Op.COMBINE))
        if depth == MAX_BLOCKS:
            w.build()
        else:
            refuses(w, "more than 48 blocks are open", S.CODE, MAX_BLOCKS)


def test_loops_have_a_limit() -> None:
    w = Writer()
    with w.entry(), ExitStack() as stack:
        for _ in range(MAX_LOOPS):
            stack.enter_context(w.loop(Op.FOR_EACH, "i", w.const(1), AxisKind.DENSE))
    w.build()
    w = Writer()
    with w.entry(), ExitStack() as stack:
        for _ in range(MAX_LOOPS):
            stack.enter_context(w.loop(Op.FOR_EACH, "i", w.const(1), AxisKind.DENSE))
        one, name = w.const(1), w.string("i")
        axis = Axis(
            name=name, kind=AxisKind.DENSE, level=MAX_LOOPS, start=one, extent=one, outer=w.axis
        )
        stack.enter_context(w.block(Op.FOR_EACH, w.add(axis)))
    refuses(w, "more than 16 loops are nested", S.CODE, MAX_LOOPS)


def test_words_have_a_limit() -> None:
    for count in (MAX_ARG_WORDS, MAX_ARG_WORDS + 1):
        w = Writer()
        constant = w.add(Const(bits=1))
        k = w.kernel("k", [])
        with w.entry():
            w.task(k, [(Op.PARAM_CONST, 0, constant)] * count)
        if count == MAX_ARG_WORDS:
            w.build()
        else:
            refuses(w, "a TASK has too many argument words", S.CODE, 0)


def test_else_directly_follows_its_cond() -> None:
    def make(between: bool) -> tuple[Writer, int]:
        w = Writer()
        yes = w.expr(ExprOp.CONST, type=ScalarType.BOOL, a=1, b=0)
        with w.entry():
            with w.block(Op.COND, condition=yes):
                w.item(Op.NOP)
            if between:
                w.item(Op.NOP)
            with w.block(Op.ELSE) as pc:
                w.item(Op.NOP)
        return w, pc

    make(between=False)[0].build()
    w, pc = make(between=True)
    refuses(w, "ELSE must directly follow the END of a COND", S.CODE, pc)
    w = Writer()
    with w.entry(), w.block(Op.ELSE):
        w.item(Op.NOP)
    refuses(w, "ELSE must directly follow the END of a COND", S.CODE, 0)


def in_a_loop(argument: P, word: tuple[Op, int, int], w: Writer) -> Writer:
    k = w.kernel("k", [argument])
    with w.entry(), w.loop(Op.PARALLEL_FOR, "i", w.const(4), AxisKind.DENSE):
        w.task(k, [word])
    return w


def test_argument_dtype() -> None:
    w = Writer()
    x = w.tensor("X", 0, DType.F64)
    access = w.access(x, AccessMode.IN, [])
    in_a_loop(P("p"), io(AccessMode.IN, access), w)
    refuses(w, "names a tensor of another dtype than parameter 'p'", S.CODE, 2)


def test_argument_kind() -> None:
    w = in_a_loop(P("p", None, ParamKind.SCALAR), (Op.AFTER, 0, 0), w := Writer())
    w.add(After(site=0))
    refuses(w, "must be SCALAR for parameter 'p'", S.CODE, 2)
    w = Writer()
    in_a_loop(P("p", None, ParamKind.SCALAR), (Op.SCALAR, 0, w.const(1)), w)
    refuses(w, "SCALAR must be of type F64, not I64", S.CODE, 2)


def test_argument_view() -> None:
    """Tokens for token parameters, pages of one sequence for paged ones."""

    def refused(param: P, tensor: str, dims: str, message: str) -> None:
        w = Writer()
        forms = {"i": w.const(0), ":": (w.const(0), w.const(4))}
        x = w.tensor("X", 2)
        table = w.tensor("table", 2, DType.I32)
        storage = w.add(Storage(storage_class=StorageClass.PAGED))
        first = w.add(Dim())
        w.add(Dim())
        paged = Tensor(
            name=w.string("paged"), storage=storage, dtype=DType.F32, dims=first, rank=2, pool=x,
            table=table, page=w.const(4),
        )  # fmt: skip
        tensors = {"X": x, "paged": w.add(paged), "token": w.made("g", StorageClass.TOKEN, [4])}
        access = w.access(tensors[tensor], AccessMode.IN, [forms[dim] for dim in dims])
        in_a_loop(param, io(AccessMode.IN, access), w)
        refuses(w, message, S.CODE, 2)

    token = "gives parameter 'p' a token, or a token parameter something else"
    plain, paged = P("p", rank=1), P("p", kind=ParamKind.PAGED, rank=1)
    refused(plain, "token", ":", token)
    refused(P("p", kind=ParamKind.TOKEN, rank=1), "X", "i:", token)
    refused(paged, "X", "i:", "gives the paged parameter 'p' a tensor without pages")
    refused(plain, "paged", ":i", "names several sequences of a paged tensor")
    refused(P("p", kind=ParamKind.PAGED), "paged", "ii", "gives the paged parameter 'p' tokens")


def test_alloc_reads_a_let_that_is_there() -> None:
    w = Writer()
    size = w.expr(ExprOp.LETVAR, a=0)
    alloc = w.add(Alloc(size=size, align=64, level=0, copies=0))
    with w.entry():
        w.item(Op.ALLOC, alloc)
        w.item(Op.LET, 0, w.const(64))
    refuses(w, "ALLOC reads a let that has no value there", S.CODE, 0)


def test_too_many_arguments() -> None:
    w = Writer()
    k = w.kernel("k", [])
    with w.entry():
        w.task(k, [(Op.SCALAR, 0, w.const(1))])
    refuses(w, "is not one that the kernel's parameters call for here", S.CODE, 1)
    w = Writer()
    k = w.kernel("k", [P("s", None, ParamKind.SCALAR, dtype=DType.I32)])
    with w.entry(), w.loop(Op.FOR_EACH, "i", w.const(1), AxisKind.DENSE):
        w.task(k, [(Op.SCALAR, 0, w.const(1)), var(0)])
    refuses(w, "is not one that the kernel's parameters call for here", S.CODE, 3)


def test_regions_read_loops_in_scope() -> None:
    w = Writer()
    x = w.tensor("X", 1)
    access = w.access(x, AccessMode.IN, [w.loop_var(1)])
    in_a_loop(P("p"), io(AccessMode.IN, access), w)
    refuses(w, "the region reads a variable of a loop that does not enclose it", S.CODE, 2)
    w = Writer()
    value = w.expr(ExprOp.LETVAR, a=0)
    x = w.tensor("X", 1)
    access = w.access(x, AccessMode.IN, [value])
    in_a_loop(P("p"), io(AccessMode.IN, access), w)
    with w.entry():
        w.item(Op.LET, 0, w.const(1))
    refuses(w, "the region reads a let that has no value there", S.CODE, 2)


@pytest.mark.parametrize(
    ("field", "level", "good"),
    [
        ("start", 0, True),
        ("start", 1, False),
        ("extent", 0, True),
        ("extent", 1, False),
        ("body_tasks", 1, True),
        ("body_tasks", 2, False),
    ],
)
def test_scope_of_axis_expressions(field: str, level: int, good: bool) -> None:
    """start and extent see the loops around, body_tasks the loop itself too."""
    w = Writer()
    with w.entry(), w.loop(Op.FOR_EACH, "i", w.const(3), AxisKind.DENSE):
        fields = {"extent": w.const(3), "kind": AxisKind.EXPR, field: w.loop_var(level)}
        with w.loop(Op.FOR_EACH, "j", **fields):  # pyright: ignore[reportArgumentType]
            w.item(Op.NOP)
    if good:
        w.build()
    else:
        refuses(w, f"Axis.{field} reads a variable of loop level {level}", S.AXIS, 1, field)


def test_extents_known_at_execute() -> None:
    w = Writer()
    with (
        w.entry(),
        w.loop(Op.FOR_EACH, "i", w.const(3), AxisKind.DENSE) as i,
        w.loop(Op.FOR_EACH, "j", i, AxisKind.DENSE_DYN),
    ):
        w.item(Op.NOP)
    refuses(w, "is DENSE_DYN and needs an extent known at execute", S.AXIS, 1, "extent")
    w = Writer()
    with w.entry(), w.loop(Op.FOR_EACH, "i", w.const(-3), AxisKind.DENSE):
        w.item(Op.NOP)
    refuses(w, "is DENSE and needs a constant extent of at least 0", S.AXIS, 0, "extent")


def test_tiled_axes() -> None:
    w = Writer()
    n = w.symbol_value(w.symbol("n", SymbolKind.EXTENT))
    with (
        w.entry(),
        w.loop(Op.FOR_EACH, "i", n, AxisKind.TILED, tile=w.const(16), flags=1, start=w.const(2)),
    ):
        w.item(Op.NOP)
    assert "i0<i> in tiled n from 2 by 16 padded" in w.build().disassemble()


def test_tier_predicates_read_loops_in_scope() -> None:
    draft = Draft(samples.tiers())
    level = next(i for i in range(64) if draft.get(S.EXPR, i, "op") == ExprOp.LOOPVAR)
    draft.set(S.EXPR, level, arg=1)
    offset, message = fault_of(draft.seal())
    assert message == "the tier set of the task reads variables that are not in scope there"
    assert offset == draft.offset(S.CODE, 3)


def test_free_in_another_block() -> None:
    w = Writer()
    alloc = w.add(Alloc(size=w.const(64), align=64, level=0))
    with w.entry():
        w.item(Op.ALLOC, alloc)
        with w.block(Op.COMBINE):
            pc = w.item(Op.FREE, alloc)
    refuses(w, "FREE does not stand in the block of its ALLOC", S.CODE, pc)


def test_buffers_end_with_their_block() -> None:
    w = Writer()
    alloc = w.add(Alloc(size=w.const(64), align=64, level=0))
    temp = w.made("t", StorageClass.TEMP, [16], alloc)
    k = w.kernel("k", [P("t", AccessMode.OUT, rank=1)])
    made = w.access(temp, AccessMode.OUT, [(w.const(0), w.const(16))])
    with w.entry():
        with w.block(Op.COMBINE):
            w.item(Op.ALLOC, alloc)
            w.task(k, [io(AccessMode.OUT, made)])
        w.task(k, [io(AccessMode.OUT, made)])
    refuses(w, "a temporary or a message that is not there", S.CODE, 6)


def test_entry_belongs_to_its_process() -> None:
    draft = Draft(samples.channels())
    draft.set(S.ENTRY, 0, process=0)
    offset, message = fault_of(draft.seal())
    assert message == "the entry's process begins at another entry"
    assert offset == draft.offset(S.ENTRY, 0, "process")
    assert Entry(pc=0).process == NONE
