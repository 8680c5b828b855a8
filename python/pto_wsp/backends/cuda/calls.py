"""Writes the call of a kernel: which form of it, and with what arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pto_wsp.backends.cuda.code import I64, Code, Scope
from pto_wsp.backends.cuda.control import call_nodes
from pto_wsp.backends.cuda.counting import I32, Found
from pto_wsp.backends.cuda.faults import FaultLines
from pto_wsp.backends.cuda.mistakes import At, Mistakes
from pto_wsp.backends.cuda.nest import Branch, Call, Loop
from pto_wsp.backends.cuda.regions import Regions, Span
from pto_wsp.backends.cuda.temporaries import Temporaries
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_body import kernel_params, tile_kernel
from pto_wsp.kernels.triton_code import ParamFacts, Role, TritonOptions, TritonSource, emit_triton
from pto_wsp.plan import Access, Axis, Kernel, Param, ParamKind, Plan, Site, StorageClass
from pto_wsp.plan.hashing import (
    COUNTS,
    INDICES,
    KERNEL,
    PATH,
    SCALARS,
    TENSOR_WORDS,
    TENSORS,
    coefficient,
)

# Pages that a task reads: their numbers are looked at before it, 256 at a time, and not where it
# reads them, since that is the innermost loop of attention.
PAGES = '''
@triton.jit
def pto_pages(row, step, first, last, count, there, some):
    """Whether a region is there and, if it has elements, the numbers of its pages are from 0 to
    below `count`."""
    at = tl.full((), 0, tl.int64) + first
    end = tl.where(there & some, last, at - 1)
    wrong = tl.full((), 0, tl.int32)
    while at <= end:
        place = at + tl.arange(0, 256)
        number = tl.load(row + place * step, mask=place <= end, other=0)
        wrong = tl.maximum(wrong, tl.max(tl.where((number < 0) | (number >= count), 1, 0), 0))
        at += 256
    return there & (wrong == 0)
'''

_VALUES = (ParamKind.SCALAR, ParamKind.CONSTEXPR)
_UNSEEN = (ParamKind.CONSTEXPR, ParamKind.TOKEN)  # what a tile kernel does not see
_FLOATS = (DType.F64, DType.F32, DType.F16, DType.BF16)


@dataclass(frozen=True, slots=True)
class Given:
    """What a parameter is given: part of a tensor."""

    access: Access
    spans: list[Span]


class Calls:
    """`functions` are the forms of kernels so far: one for each kernel and what is known of its
    regions."""

    def __init__(
        self,
        plan: Plan,
        code: Code,
        regions: Regions,
        temps: Temporaries,
        options: TritonOptions,
        mistakes: Mistakes | None,
    ) -> None:
        self._plan = plan
        self._code = code
        self._regions = regions
        self._temps = temps
        self._options = options
        self._accesses = plan.records(Access)
        self._sites = plan.records(Site)
        self.functions: dict[tuple[int, tuple[ParamFacts, ...]], TritonSource] = {}
        self.faults: dict[int, tuple[str, ...]] = {}
        self._fault_lines = FaultLines(plan, code)
        self._mistakes = mistakes
        self.checks_pages = False

    def write(self, call: Call, found: Found) -> None:
        """One task: its kernel, unless a region of it does not exist."""
        code, scope = self._code, found.scope
        kernel = self._sites[call.site].kernel
        params = kernel_params(self._plan, kernel)
        given = self._given(call, params, found)
        conditions: list[str] = []
        for position, each in given.items():
            conditions += self._regions.inside(each.access, each.spans, params[position], scope)
        function = self._function(kernel, params, given, scope)
        self.faults[call.site] = function.faults
        scalars = self._scalars(call, params, scope)
        conditions += self._control(call, params, found)
        conditions = self._on_pages(params, given, conditions, scope)
        arguments = self._arguments(function, params, given, scalars, scope, conditions)
        with code.block("if HASH:"):
            self._write_hash(call, params, given, scalars, found)
        text = f"{function.name}({', '.join(arguments)})"
        if function.faults:
            self._fault_lines.kernel(call, found)
        if conditions:
            good = code.fresh("ok")
            code.line(f"{good} = {' & '.join(conditions)}")
            with code.block(f"if {good}:"):
                code.line(text)
            with code.block("else:"):
                self._fault_lines.outside(call, found)
        else:
            code.line(text)

    def _given(self, call: Call, params: tuple[Param, ...], found: Found) -> dict[int, Given]:
        """By position: the regions."""
        accesses = iter(self._accesses[number] for number in call.accesses)
        given: dict[int, Given] = {}
        for position, param in enumerate(params):
            if param.kind not in _VALUES:
                access = next(accesses)
                self._temps.use(access.tensor, found, self._regions)
                given[position] = Given(access, self._regions.spans(access, found.scope))
        return given

    def _scalars(self, call: Call, params: tuple[Param, ...], scope: Scope) -> dict[int, str]:
        """By position: the values of scalars."""
        values = iter(call.scalars)
        found: dict[int, str] = {}
        for position, param in enumerate(params):
            if param.kind != ParamKind.SCALAR:
                continue
            text = self._code.value(next(values), scope)
            if DType(param.dtype) not in _FLOATS and text.lstrip("-").isdigit():
                text = f"tl.full((), {text}, {I64})"
            found[position] = self._code.named(text, "x")
        return found

    # --- mistakes in control ---

    def _control(self, call: Call, params: tuple[Param, ...], found: Found) -> list[str]:
        """Conditions under which the values of a task are numbers that fit. What the loops around
        it compute, and what has one value in a run, is looked at elsewhere (control.py)."""
        mistakes, code = self._mistakes, self._code
        if mistakes is None:
            return []
        conditions: list[str] = []
        nodes = call_nodes(self._plan, call)
        seen = self._seen_around(call, found).union(*(mistakes.once(node) for node in nodes))
        left = [node for node in nodes if mistakes.is_left(node, seen)]
        if left:
            bad = code.fresh("bad")
            code.line(f"{bad} = tl.full((), 0, {I32})")
            at = At(found.scope, bad, "", seen)
            for node in left:
                mistakes.look(node, at)
            conditions.append(f"({bad} == 0)")
        dtypes = [DType(param.dtype) for param in params if param.kind == ParamKind.SCALAR]
        for dtype, node in zip(dtypes, call.scalars, strict=True):
            conditions += self._fits(dtype, node, found.scope)
        return conditions

    def _seen_around(self, call: Call, found: Found) -> set[int]:
        """Nodes that are looked at where loops, conditions and temporaries are."""
        assert self._mistakes is not None
        axes, nodes = self._plan.records(Axis), list[int]()
        for item, _ in found.path:
            if isinstance(item, Loop):
                nodes += [axes[item.axis].start, axes[item.axis].extent]
            elif isinstance(item, Branch):
                nodes.append(item.condition)
        for number in call.accesses:
            tensor = self._accesses[number].tensor
            if self._regions.kind(tensor) == StorageClass.TEMP:
                nodes += self._regions.shape_nodes(tensor)
        return set[int]().union(*(self._mistakes.sure(node) for node in nodes))

    def _fits(self, dtype: DType, node: int, scope: Scope) -> list[str]:
        """Whether a scalar is one of its type."""
        assert self._mistakes is not None
        if dtype in _FLOATS or dtype is DType.I64:
            return []
        low, high = (0, 1) if dtype is DType.BOOL else _range(dtype)
        known = self._mistakes.bounds(node)
        value = self._code.value(node, scope)
        found = [f"({value} >= {low})"] if known[0] < low else []
        return found + ([f"({value} <= {high})"] if known[1] > high and high < 1 << 63 else [])

    def _on_pages(
        self,
        params: tuple[Param, ...],
        given: dict[int, Given],
        conditions: list[str],
        scope: Scope,
    ) -> list[str]:
        """The conditions and, where there are regions of paged tensors, that their pages are those
        of the pool: one name for all of it."""
        code, pools = self._code, dict[tuple[str, ...], list[str]]()
        paged = [p for p, e in given.items() if self._is_paged(e)]
        for position in paged:
            access, spans = given[position].access, given[position].spans
            place, count = self._regions.on_pages(access, spans, scope)
            extents = [span.extent for span in spans if not span.extent.isdigit()]
            some = " & ".join(f"({extent} > 0)" for extent in dict.fromkeys(extents)) or "True"
            alone = params[position].kind != ParamKind.PAGED
            if alone and self._mistakes is not None:
                conditions = [*conditions, f"((({some}) == 0) | ({place[2]} == {place[3]}))"]
            if self._mistakes is not None and not code.known.trusts_pages:
                pools.setdefault((*place, some), []).append(count)
        if not paged:
            return conditions
        there = code.named(" & ".join(conditions) or "tl.full((), 1, tl.int1)", "there")
        for (*place, some), counts in pools.items():
            self.checks_pages = True
            count = counts[0]
            for other in dict.fromkeys(counts[1:]):
                count = f"tl.minimum({count}, {other})"
            text = f"pto_pages({', '.join(place)}, {count}, {there}, {some})"
            there = code.named(text, "there")
        return [there]

    def _is_paged(self, given: Given) -> bool:
        return self._regions.kind(given.access.tensor) == StorageClass.PAGED

    # --- which form ---

    def _function(
        self, kernel: int, params: tuple[Param, ...], given: dict[int, Given], scope: Scope
    ) -> TritonSource:
        """The Triton form of a kernel for what is known of these regions."""
        facts = {
            position: self._regions.facts(each.access, each.spans, params[position], scope)
            for position, each in given.items()
            if params[position].kind != ParamKind.TOKEN
        }
        facts = self._same_pages(self._same_extents(facts, params, given), params, given)
        key = (kernel, tuple(facts.values()))
        if key not in self.functions:
            stem = "".join(c if c.isalnum() else "_" for c in self._plan.kernel_names[kernel])
            named = {self._plan.string(params[p].name): fact for p, fact in facts.items()}
            options = replace(self._options, params=named)
            name = f"{stem}_{len(self.functions)}"
            self.functions[key] = emit_triton(tile_kernel(self._plan, kernel), name, options)
        return self.functions[key]

    def _same_extents(
        self, facts: dict[int, ParamFacts], params: tuple[Param, ...], given: dict[int, Given]
    ) -> dict[int, ParamFacts]:
        """Regions whose extents are one expression are as long as each other."""
        first: dict[str, tuple[str, int]] = {}
        found: dict[int, ParamFacts] = {}
        for position, fact in facts.items():
            name = self._plan.string(params[position].name)
            seen = [span.extent for span in given[position].spans if not span.dropped]
            pairs = zip(seen, fact.extents, strict=True)
            extents = (known if known is not None else first.get(text) for text, known in pairs)
            found[position] = replace(fact, extents=tuple(extents))
            for dim, text in enumerate(seen):  # not before: only other regions may be said to be so
                first.setdefault(text, (name, dim))
        return found

    def _same_pages(
        self, facts: dict[int, ParamFacts], params: tuple[Param, ...], given: dict[int, Given]
    ) -> dict[int, ParamFacts]:
        """Regions whose tokens have the same numbers of the same table."""
        first: dict[tuple[object, ...], str] = {}
        known, found = self._code.known, {**facts}
        for position, fact in facts.items():
            tensor = self._regions.record(given[position].access.tensor)
            if params[position].kind != ParamKind.PAGED or (tensor.pool, 1) not in known.extents:
                continue
            spans = given[position].spans
            table, size = known.same.get(tensor.table, tensor.table), known.extents[tensor.pool, 1]
            key = table, size, spans[0].start, spans[1].start, spans[1].step
            found[position] = replace(fact, pages_of=first.get(key, ""))
            first.setdefault(key, self._plan.string(params[position].name))
        return found

    # --- arguments ---

    def _arguments(
        self,
        function: TritonSource,
        params: tuple[Param, ...],
        given: dict[int, Given],
        scalars: dict[int, str],
        scope: Scope,
        conditions: list[str],
    ) -> list[str]:
        positions = [p for p, param in enumerate(params) if param.kind not in _UNSEEN]
        found: list[str] = []
        for argument in function.arguments:
            if argument.role is Role.FAULT:
                found.append(self._fault_lines.word)
                continue
            position = positions[argument.param]
            if argument.role is Role.SCALAR:
                found.append(scalars[position])
                continue
            access, spans = given[position].access, given[position].spans
            paged = self._is_paged(given[position])
            if paged and params[position].kind != ParamKind.PAGED and argument.role is Role.OFFSET:
                assert len(conditions) == 1, "of pages it is known whether they are there"
                found.append(self._regions.on_one_page(access, spans, scope, conditions[0]))
                continue
            found.append(self._regions.argument(argument, access, spans, scope))
        return [self._code.named(text, "x") for text in found]

    # --- the task hash ---

    def _write_hash(
        self,
        call: Call,
        params: tuple[Param, ...],
        given: dict[int, Given],
        scalars: dict[int, str],
        found: Found,
    ) -> None:
        """Adds what plan.hashing says of this task."""
        site = self._sites[call.site]
        words: dict[int, str] = {
            KERNEL: str(self._plan.records(Kernel)[site.kernel].name_hash),
            PATH: str(site.path_hash),
            COUNTS: str(site.level | len(scalars) << 16 | len(given) << 32),
        }
        words |= {INDICES + level: name for level, name in found.scope.loops.items()}
        for k, (position, text) in enumerate(scalars.items()):
            words[SCALARS + k] = _bits(DType(params[position].dtype), text)
        for p, each in enumerate(given.values()):
            first = TENSORS + TENSOR_WORDS * p
            words |= {first: str(each.access.tensor), first + 1: str(int(each.access.mode))}
            words[first + 2] = str(len(each.spans))
            for d, span in enumerate(each.spans):
                at = first + 4 + 3 * d
                words |= {at: span.start, at + 1: span.extent, at + 2: span.step}
        for lane in (0, 1):
            self._write_lane(lane, words)

    def _write_lane(self, lane: int, words: dict[int, str]) -> None:
        constant, terms = 0, list[str]()
        for at, word in words.items():
            factor = coefficient(lane, at)
            if word.lstrip("-").isdigit():
                constant += int(word) * factor
            else:
                terms.append(f"({word}).to({I64}) * {_signed(factor)}")
        start = f"tl.full((), {_signed(constant)}, {I64})"
        total = " + ".join([start, *terms])
        self._code.line(f"tl.atomic_add(HASHES + {lane}, pto_mix({total}))")


def _range(dtype: DType) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _signed(value: int) -> int:
    """64 bits as a signed number."""
    value &= (1 << 64) - 1
    return value - (value >> 63 << 64)


def _bits(dtype: DType, text: str) -> str:
    """A scalar argument as the bits of its dtype."""
    if dtype is DType.F64:
        return f"(tl.full((), 0.0, tl.float64) + {text}).to(tl.int64, bitcast=True)"
    if dtype is DType.F32:
        narrow = f"(tl.full((), 0.0, tl.float64) + {text}).to(tl.float32)"
        return f"{narrow}.to(tl.uint32, bitcast=True)"
    if dtype in (DType.I64, DType.U64):
        return text
    return f"((tl.full((), 0, {I64}) + {text}) & {(1 << 8 * dtype.size) - 1})"
