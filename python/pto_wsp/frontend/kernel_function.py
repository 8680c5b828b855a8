"""What a decorated function says of its kernel: parameters, headers, the unit that runs it."""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from types import FunctionType
from typing import Any, cast

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import annotations, kernel_source
from pto_wsp.frontend.annotations import Param, TensorParam, param_of
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.tensor_kinds import PagedTensor, Token
from pto_wsp.srcloc import SrcLoc

_HEADER = re.compile(r"""(?:#\s*include\s*)?(<[^<>\n]+>|"[^"\n]+")""")
_ANNOTATIONS = ("In", "Out", "InOut", "Accum", "Constexpr", "Scalar", "Tile")


def exec_unit_of(name: object) -> ir.ExecUnit:
    names = {unit.value: unit for unit in ir.ExecUnit}
    if isinstance(name, str) and name in names:
        return names[name]
    raise refused(
        Code.KERNEL_FUNCTION,
        f"@kernel(exec_unit={name!r})",
        "there is no such kind of core",
        f"use one of {', '.join(map(repr, names))}",
    )


def checked_function(function: object) -> FunctionType:
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        raise refused(
            Code.KERNEL_FUNCTION,
            f"@kernel on {kind}",
            "a kernel is a function",
            "decorate a `def` function",
        )
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise refused(
            Code.KERNEL_FUNCTION,
            f"kernel {function.__name__} is a generator or coroutine",
            "a task runs its kernel from beginning to end",
            "remove yield, async and await",
            kernel_source.definition(function),
        )
    return function


def params_of(function: FunctionType) -> tuple[Param, ...]:
    # Annotations may be strings, and may name what only the function around the kernel can see.
    frame = srcloc.user_frame()
    around = {} if frame is None else frame.f_locals
    own: dict[str, Any] = {name: getattr(annotations, name) for name in _ANNOTATIONS}
    own |= {"Tensor": Tensor, "PagedTensor": PagedTensor, "Token": Token, "DType": DType}
    own["Location"] = ir.Location
    scope = ChainMap(dict(around), function.__globals__, own)
    loc = kernel_source.definition(function)
    return tuple(
        _param(function.__name__, param, scope, loc)
        for param in inspect.signature(function).parameters.values()
    )


def _param(kernel: str, param: inspect.Parameter, scope: Any, loc: SrcLoc) -> Param:
    what = f"kernel {kernel}: parameter {param.name}"
    fix = (
        f"write `{param.name}: In[Tensor]` (or Out, InOut, Accum; or of Tile[16, 16, DType.F32]), "
        "Scalar[DType.F32] or Constexpr[int]"
    )
    if param.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        why = "a kernel has a fixed list of parameters, given by position or by name"
        raise refused(Code.KERNEL_PARAMETER, f"{what} is {param.kind.description}", why, fix, loc)
    annotation: Any = param.annotation
    if annotation is inspect.Parameter.empty:
        raise refused(
            Code.KERNEL_PARAMETER,
            f"{what} has no annotation",
            "it says what the kernel does to it",
            fix,
            loc,
        )
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, {}, scope)
        except Exception as error:
            text = param.annotation
            raise refused(
                Code.KERNEL_PARAMETER, f"{what}: {text} cannot be evaluated", str(error), fix, loc
            ) from error
    has_default = param.default is not inspect.Parameter.empty
    found = param_of(param.name, annotation, param.default if has_default else None)
    if found is None:
        shown = param.annotation if isinstance(param.annotation, str) else repr(annotation)
        why = "a parameter is a tensor or tile with a direction, a scalar, or a constant"
        raise refused(Code.KERNEL_PARAMETER, f"{what} is annotated {shown}", why, fix, loc)
    if has_default and isinstance(found, TensorParam):
        why = "every call names the region of every tensor parameter"
        raise refused(
            Code.KERNEL_PARAMETER, f"{what} has a default", why, "remove the default", loc
        )
    return found


def includes_of(headers: object) -> tuple[str, ...]:
    """The whole `#include` lines."""
    return tuple(_include_line(each) for each in _list_of_includes(headers))


def _list_of_includes(includes: object) -> list[object]:
    if not isinstance(includes, list | tuple):
        raise refused(
            Code.KERNEL_BODY,
            "cpp_includes is not a list",
            f"it is {type(includes).__name__}",
            'write cpp_includes=["<cmath>"]',
        )
    return list(cast("list[object]", includes))


def _include_line(include: object) -> str:
    """The whole `#include` line of "<cmath>", '"x.h"' or a whole line."""
    header = _HEADER.fullmatch(include.strip()) if isinstance(include, str) else None
    if header is not None:
        return f"#include {header[1]}"
    raise refused(
        Code.KERNEL_BODY,
        f"cpp_includes holds {include!r}",
        "it is not a header",
        'write "<cmath>", \'"mine.h"\' or a whole #include line',
    )


def refused(code: Code, what: str, why: str, fix: str, loc: SrcLoc | None = None) -> CompileError:
    return CompileError(code, what, loc=loc or srcloc.here(), why=why, fix=fix)
