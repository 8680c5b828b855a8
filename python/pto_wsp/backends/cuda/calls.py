"""Writes the call of a kernel: which form of it, and with what arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pto_wsp.backends.cuda.code import I64, Code, Scope
from pto_wsp.backends.cuda.counting import Found
from pto_wsp.backends.cuda.faults import FaultLines
from pto_wsp.backends.cuda.nest import Call
from pto_wsp.backends.cuda.regions import Regions, Span
from pto_wsp.backends.cuda.temporaries import Temporaries
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_body import kernel_params, tile_kernel
from pto_wsp.kernels.triton_code import ParamFacts, Role, TritonOptions, TritonSource, emit_triton
from pto_wsp.plan import Access, Kernel, Param, ParamKind, Plan, Site, StorageClass
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
        self, plan: Plan, code: Code, regions: Regions, temps: Temporaries, options: TritonOptions
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
        arguments = self._arguments(function, params, given, scalars, scope)
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
            paged = self._regions.kind(access.tensor) == StorageClass.PAGED
            if paged and params[position].kind != ParamKind.PAGED and argument.role is Role.OFFSET:
                found.append(self._regions.on_one_page(access, spans, scope))
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
