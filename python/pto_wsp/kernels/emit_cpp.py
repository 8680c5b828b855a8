"""C++ bodies and tile kernels of a plan as one translation unit.

Each body stands in a function of its own namespace, under `#line 1 "ptowsp-kernel:<name>"`, so that
a compiler's message names the line of the body. Behind it follows the exported entry point with
the C signature of `ptowsp_kernel_fn`. The text holds no path, so equal plans give equal text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, PlanError
from pto_wsp.kernels.cpp_words import CPP_WORDS
from pto_wsp.kernels.emit_tile import TileSource, emit_tile
from pto_wsp.kernels.sharing import view_params, views_of_calls
from pto_wsp.kernels.tile_body import kernel_params, tile_kernel
from pto_wsp.kernels.tile_ir import RefType
from pto_wsp.plan import AccessMode, BodyForm, Param, ParamKind, Plan, Section

UNIT_NAME = "ptowsp-kernels.cpp"
KERNEL_INCLUDE = "#include <ptowsp_kernel/ptowsp_kernel.h>"

CPP_TYPES: Mapping[DType, str] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "ptowsp::f16",
    DType.BF16: "ptowsp::bf16",
    DType.I8: "std::int8_t",
    DType.I16: "std::int16_t",
    DType.I32: "std::int32_t",
    DType.I64: "std::int64_t",
    DType.U8: "std::uint8_t",
    DType.U16: "std::uint16_t",
    DType.U32: "std::uint32_t",
    DType.U64: "std::uint64_t",
    DType.BOOL: "bool",
}


@dataclass(frozen=True, slots=True)
class CppBody:
    """A C++ body as it travels in a plan."""

    includes: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class CppUnit:
    """Generated C++. `kernels` are the KERNEL indices with an entry point in it; `labels` maps the
    file names that messages about bodies carry to KERNEL indices. Each tile kernel can be compiled
    apart from all else."""

    text: str
    kernels: tuple[int, ...]
    labels: Mapping[str, int]
    tiles: tuple[TileLines, ...] = ()


@dataclass(frozen=True, slots=True)
class TileLines:
    """The lines of a tile kernel in a unit, from `begin` up to `end`, which count from 0; and the
    headers that it includes."""

    begin: int
    end: int
    includes: tuple[str, ...]


def entry_point(kernel: int) -> str:
    """The exported symbol of a kernel."""
    return f"ptowsp_kernel_{kernel}"


def scratch_symbol(kernel: int) -> str:
    """The exported std::uint64_t that says how much scratch memory a kernel needs."""
    return f"ptowsp_scratch_{kernel}"


def cpp_body(plan: Plan, kernel: int) -> CppBody | None:
    """The C++ body of a kernel, or None if it has another form."""
    body = plan.body(kernel)
    if body is None or body.form != BodyForm.CPP:
        return None
    try:
        content = cast("dict[str, Any]", json.loads(body.data))
        return CppBody(tuple(str(line) for line in content["includes"]), str(content["source"]))
    except (ValueError, KeyError, TypeError) as error:
        name = plan.kernel_names[kernel]
        raise PlanError(
            Code.PLAN_DAMAGED, f"the C++ body of kernel {name!r} is not understood: {error}"
        ) from None


def emit_cpp(plan: Plan, with_tiles: bool = True) -> CppUnit | None:
    """One translation unit for all C++ bodies of the plan, and its tile kernels; None if it has
    none."""
    bodies = {i: cpp_body(plan, i) for i in range(len(plan.kernel_names))}
    shared = views_of_calls(plan)
    tiles = {i: _tile(plan, i, shared[i]) for i in bodies if with_tiles and is_tile(plan, i)}
    return _emit_unit(plan, bodies, tiles)


def emit_sharing(plan: Plan, kernel: int, views: int) -> CppUnit:
    """One tile kernel whose parameters with these views may lie in the same memory."""
    unit = _emit_unit(plan, {kernel: None}, {kernel: _tile(plan, kernel, views)})
    assert unit is not None
    return unit


def _tile(plan: Plan, index: int, views: int) -> TileSource:
    """`views`: those that may lie in the same memory."""
    kernel = tile_kernel(plan, index)
    refs = (value for value in kernel.params if isinstance(value.type, RefType))
    numbered = enumerate(view_params(kernel_params(plan, index)))
    seen = (i for i, param in numbered if param.kind != ParamKind.TOKEN)
    shared = (value.number for value, i in zip(refs, seen, strict=True) if views >> i & 1)
    return emit_tile(kernel, frozenset(shared))


def _emit_unit(
    plan: Plan, bodies: Mapping[int, CppBody | None], tiles: Mapping[int, TileSource]
) -> CppUnit | None:
    found = [i for i, body in bodies.items() if body is not None or i in tiles]
    if not found:
        return None
    writer = _Writer()
    writer.line(KERNEL_INCLUDE)
    lines = [_include_line(text) for body in bodies.values() if body for text in body.includes]
    includes = {i: _includes(tile) for i, tile in tiles.items()}
    lines += [line for each in includes.values() for line in each]
    for line in dict.fromkeys(lines):
        writer.line(line)
    labels: dict[str, int] = {}
    tile_lines: list[TileLines] = []
    for index in found:
        label = _label(plan.kernel_names[index], index, labels)
        labels[label] = index
        body = bodies[index]
        if body is not None:
            _emit_kernel(writer, plan, index, body.source, label)
        else:
            begin = writer.here() - 1
            _emit_tile_kernel(writer, plan, index, tiles[index])
            tile_lines.append(TileLines(begin, writer.here() - 1, includes[index]))
    return CppUnit(writer.text(), tuple(found), labels, tuple(tile_lines))


def is_tile(plan: Plan, kernel: int) -> bool:
    body = plan.body(kernel)
    return body is not None and body.form == BodyForm.TILE_IR


class _Writer:
    """Collects lines and knows the number of the next one."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def line(self, text: str) -> None:
        self._lines.extend(text.split("\n"))

    def here(self) -> int:
        return len(self._lines) + 1

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _includes(tile: TileSource) -> tuple[str, ...]:
    return tuple(f"#include <ptowsp_tile/{header}>" for header in tile.headers)


def _include_line(text: str) -> str:
    """`<vector>` and `"my.h"` are short for include lines; any other line stays as it is."""
    stripped = text.strip()
    return f"#include {stripped}" if stripped.startswith(("<", '"')) else stripped


def _label(name: str, index: int, taken: Mapping[str, int]) -> str:
    """A file name for messages: safe inside quotes, not a number, used once."""
    label = "ptowsp-kernel:" + re.sub(r"[^\w.<>-]|^(?=\d+$)", "_", name)
    return label if label not in taken else f"{label}#{index}"


def _emit_tile_kernel(writer: _Writer, plan: Plan, index: int, source: TileSource) -> None:
    space = f"ptowsp_body_{index}"
    params = kernel_params(plan, index)
    _, _, arguments = _signature(params, [plan.string(param.name) for param in params])
    writer.line("")
    writer.line(f"namespace {space} {{")
    writer.line(source.text.rstrip("\n"))
    writer.line(f"}}  // namespace {space}")
    writer.line('extern "C" __attribute__((visibility("default")))')
    writer.line(f"const std::uint64_t {scratch_symbol(index)} = {space}::kScratchBytes;")
    _emit_entry(writer, index, [*arguments, "static_cast<std::byte*>(call->scratch)"])


def _emit_entry(writer: _Writer, index: int, arguments: list[str]) -> None:
    writer.line(
        f"PTOWSP_KERNEL {entry_point(index)}"
        "([[maybe_unused]] const ptowsp_call* call, void*) noexcept {"
    )
    writer.line("  return ptowsp::run_body(call, [&] {")
    writer.line(f"    ptowsp_body_{index}::body({', '.join(arguments)});")
    writer.line("  });")
    writer.line("}")


def _emit_kernel(writer: _Writer, plan: Plan, index: int, source: str, label: str) -> None:
    params = kernel_params(plan, index)
    names = [_param_name(plan, index, param) for param in params]
    space = f"ptowsp_body_{index}"
    declared, constants, arguments = _signature(params, names)

    writer.line("")
    writer.line(f"namespace {space} {{")
    writer.line(f"static inline void body({', '.join(declared)}) {{")
    for constant in constants:
        writer.line(constant)
    writer.line(f'#line 1 "{label}"')
    writer.line(source)
    writer.line(f'#line {writer.here() + 1} "{UNIT_NAME}"')
    writer.line("}")
    writer.line(f"}}  // namespace {space}")
    _emit_entry(writer, index, arguments)


def _signature(
    params: tuple[Param, ...], names: list[str]
) -> tuple[list[str], list[str], list[str]]:
    """Declarations of the body's parameters, its constants, and what the entry point passes."""
    declared: list[str] = []
    constants: list[str] = []
    arguments: list[str] = []
    views = scalars = 0
    for param, name in zip(params, names, strict=True):
        dtype = DType(param.dtype)
        type_name = CPP_TYPES[dtype]
        match ParamKind(param.kind):
            case ParamKind.TENSOR | ParamKind.TILE:
                const = "const " if param.mode == AccessMode.IN else ""
                element = f"<{const}{type_name}, {param.rank}>"
                declared.append(f"[[maybe_unused]] ptowsp::View{element} {name}")
                arguments.append(f"ptowsp::view_argument{element}(call, {views})")
                views += 1
            case ParamKind.PAGED:
                const = "const " if param.mode == AccessMode.IN else ""
                element = f"<{const}{type_name}, {param.rank}>"
                declared.append(f"[[maybe_unused]] ptowsp::PagedView{element} {name}")
                arguments.append(f"ptowsp::paged_argument{element}(call, {views})")
                views += 1
            case ParamKind.TOKEN:  # nothing to see
                views += 1
            case ParamKind.SCALAR:
                declared.append(f"[[maybe_unused]] {type_name} {name}")
                arguments.append(f"ptowsp::scalar_argument<{type_name}>(call, {scalars})")
                scalars += 1
            case ParamKind.CONSTEXPR:
                constants.append(_constant(dtype, name, param.value))
    return declared, constants, arguments


def _constant(dtype: DType, name: str, bits: int) -> str:
    type_name = CPP_TYPES[dtype]
    match dtype:
        case DType.F64:
            value = f"constexpr double {name} = std::bit_cast<double>(std::uint64_t{{{bits:#x}}})"
        case DType.F32:
            low = bits & 0xFFFFFFFF
            value = f"constexpr float {name} = std::bit_cast<float>(std::uint32_t{{{low:#x}}})"
        case DType.F16 | DType.BF16:
            value = f"const {type_name} {name} = ptowsp::from_bits<{type_name}>({bits:#x})"
        case _:
            value = f"constexpr {type_name} {name} = static_cast<{type_name}>({bits:#x}ull)"
    return f"[[maybe_unused]] {value};"


def _param_name(plan: Plan, kernel: int, param: Param) -> str:
    name = plan.string(param.name)
    if name.isidentifier() and name not in CPP_WORDS:
        return name
    why = "is a word of C++" if name in CPP_WORDS else "is not an identifier"
    raise CompileError(
        Code.KERNEL_PARAMETER,
        f"kernel {plan.kernel_names[kernel]!r}: {name!r} cannot name a parameter of a C++ body",
        loc=plan.loc(Section.KERNEL, kernel),
        why=f"{name!r} {why}",
        fix="rename the parameter",
    )
