"""Code as text, indented by nesting; a task and its argument words are one line."""

from __future__ import annotations

from pto_wsp.plan.enums import NONE, Op, ParamKind, ScalarType, Section
from pto_wsp.plan.exprtext import ExprText, bits_text, slot_name
from pto_wsp.plan.reader import PlanReader
from pto_wsp.plan.records import (
    Access,
    After,
    Axis,
    Channel,
    Const,
    Entry,
    Instr,
    Kernel,
    Param,
    Process,
    Site,
    Tier,
    TierSet,
)

_LOOPS = frozenset({Op.PARALLEL_FOR, Op.FOR_EACH, Op.SELECT, Op.LOOP_WHILE})
_LEVELS = _LOOPS | {Op.RECV}
_OPENS = _LEVELS | {Op.COND, Op.ELSE, Op.COMBINE, Op.SEQUENTIAL}
_SITES = frozenset({Op.TASK, Op.COLLECTIVE, Op.SLOT_LOAD})


def callee_name(plan: PlanReader, site: Site) -> str:
    """The kernel or tier set that a site calls; the kind of other sites."""
    if site.kernel != NONE:
        return plan.kernel_names[site.kernel]
    if site.tiers != NONE:
        return plan.string(plan.records(TierSet)[site.tiers].name)
    return site.kind.name.lower()


class CodeText:
    """Prints the CODE section of one plan."""

    def __init__(self, plan: PlanReader) -> None:
        self._plan = plan
        self._exprs = ExprText(plan)
        self._code = plan.records(Instr)
        self._base: dict[int, int] = {}  # loops around the CALL of an entry

    def lines(self) -> list[str]:
        """All entries."""
        entries = self._plan.records(Entry)
        ends = [*(entry.pc for entry in entries[1:]), len(self._code)]
        out: list[str] = []
        for index, (entry, end) in enumerate(zip(entries, ends, strict=True)):
            out += ["", f"entry {index}{self._owner(index, entry)}"]
            out += self._entry(entry.pc, end, self._base.get(index, 0))
        return out

    def _owner(self, index: int, entry: Entry) -> str:
        if entry.process == NONE:
            return " main" if index == 0 else ""
        return f" of process {self._plan.string(self._plan.records(Process)[entry.process].name)}"

    def _entry(self, pc: int, end: int, level: int) -> list[str]:
        out: list[str] = []
        around: list[int] = []  # loops around each open block
        while pc < end:
            instr = self._code[pc]
            if instr.opcode is Op.END:
                level = around.pop()
            text, words = self._instr(pc, instr, level)
            where = self._where(instr)
            out.append(f"{pc:4}  {'  ' * len(around)}{text}{where}")
            if instr.opcode is Op.CALL:
                self._base[instr.operand2] = level
            if instr.opcode in _OPENS:
                around.append(level)
                level += instr.opcode in _LEVELS
            pc += 1 + words
        return out

    def _where(self, instr: Instr) -> str:
        place = None
        if instr.opcode in _LOOPS:
            place = self._plan.debug_loc(Section.AXIS, instr.operand1)
        elif instr.opcode in _SITES:
            place = self._plan.debug_loc(Section.SITE, instr.operand2)
        return "" if place is None else f"  # {place}"

    def _instr(self, pc: int, instr: Instr, level: int) -> tuple[str, int]:
        """The text of an instruction and how many words behind it the text covers."""
        name = instr.opcode.name.lower()
        match instr.opcode:
            case Op.PARALLEL_FOR | Op.FOR_EACH | Op.SELECT:
                return f"{name} {self._axis(instr.operand1)}", 0
            case Op.LOOP_WHILE:
                return f"{name} {self._axis(instr.operand1)} while {self._condition(pc)}", 1
            case Op.COND:
                return f"if {self._condition(pc)}", 1
            case Op.RECV:
                channel = self._plan.string(self._plan.records(Channel)[instr.operand1].name)
                return f"recv {channel} as i{level}", 0
            case Op.TASK | Op.COLLECTIVE:
                return f"{name} {self._task(pc, instr)}", instr.operand1
            case Op.SLOT_LOAD:
                region = self._exprs.region(self._plan.records(Access)[self._code[pc + 1].operand2])
                return f"{slot_name(self._plan, instr.operand1)} = load {region}", 1
            case _:
                return self._simple(name, instr), 0

    def _condition(self, pc: int) -> str:
        return self._exprs.expr(self._code[pc + 1].operand2)

    def _simple(self, name: str, instr: Instr) -> str:
        expr, plan = self._exprs.expr, self._plan
        first, second = instr.operand1, instr.operand2
        match instr.opcode:
            case Op.LET:
                return f"let{first} = {expr(second)}"
            case Op.SLOT_SET:
                return f"{slot_name(plan, first)} = {expr(second)}"
            case Op.SEND | Op.CLOSE | Op.TAKE | Op.DROP | Op.ROOM:
                channel = plan.string(plan.records(Channel)[first].name)
                return f"{name} {channel}" + (f" of site {second}" if name == "send" else "")
            case Op.BREAK:
                return f"break i{first}"
            case Op.CALL:
                return f"call entry {second}"
            case Op.ALLOC | Op.FREE:
                return f"{name} {first}"
            case _:
                return name

    def _axis(self, index: int) -> str:
        axis, expr = self._plan.records(Axis)[index], self._exprs.expr
        text = f"i{axis.level}<{self._plan.string(axis.name)}> in {axis.kind.name.lower()}"
        text += f" {expr(axis.extent)}"
        if not self._exprs.is_const(axis.start, 0):
            text += f" from {expr(axis.start)}"
        if axis.tile != NONE:
            text += f" by {expr(axis.tile)}" + (" padded" if axis.flags else "")
        if axis.value != NONE:
            text += f" as {expr(axis.value)}"
        tasks = "unknown" if axis.body_tasks == NONE else expr(axis.body_tasks)
        return f"{text} ; {tasks} tasks/iter"

    def _task(self, pc: int, instr: Instr) -> str:
        plan = self._plan
        site = plan.records(Site)[instr.operand2]
        words = list(self._code[pc + 1 : pc + 1 + instr.operand1])
        indices: list[str] = []
        while words and words[0].opcode in (Op.PARAM_CONST, Op.PARAM_LOOPVAR, Op.PARAM_EXPR):
            indices.append(self._identity(words.pop(0)))
        args = [f"{plan.string(p.name)}={self._argument(words.pop(0))}" for p in self._passed(site)]
        after = [self._after(word) for word in words]
        brackets = f"[{', '.join(indices)}]" if indices else ""
        tail = f" after {', '.join(after)}" if after else ""
        return f"{callee_name(plan, site)}{brackets}({', '.join(args)}){tail}"

    def _passed(self, site: Site) -> list[Param]:
        """The parameters that a task passes: all but the CONSTEXPR ones."""
        plan, index = self._plan, site.kernel
        if index == NONE:
            index = plan.records(Tier)[plan.records(TierSet)[site.tiers].tiers].kernel
        kernel = plan.records(Kernel)[index]
        params = plan.records(Param)[kernel.params : kernel.params + kernel.num_params]
        return [p for p in params if p.kind is not ParamKind.CONSTEXPR]

    def _identity(self, word: Instr) -> str:
        match word.opcode:
            case Op.PARAM_LOOPVAR:
                return f"i{word.operand1}"
            case Op.PARAM_CONST:
                return bits_text(self._plan.records(Const)[word.operand2].bits, ScalarType.I64)
            case _:
                return self._exprs.expr(word.operand2)

    def _argument(self, word: Instr) -> str:
        if word.opcode is Op.SCALAR:
            return self._exprs.expr(word.operand2)
        access = self._plan.records(Access)[word.operand2]
        return f"{access.mode.name.lower()} {self._exprs.region(access)}"

    def _after(self, word: Instr) -> str:
        after = self._plan.records(After)[word.operand2]
        instance = self._exprs.exprs(after.indices, after.num_indices)
        return f"site {after.site}" + (f"[{instance}]" if instance else "")
