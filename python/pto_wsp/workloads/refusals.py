"""Errors about what ready workloads are made with and given, at the user's line."""

from __future__ import annotations

from dataclasses import replace

from pto_wsp import srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.srcloc import SrcLoc

ATTENTION = (DType.F32, DType.F16, DType.BF16)


def refused(message: str, why: str, fix: str) -> CompileError:
    """For what no workload can be made with, or given."""
    return CompileError(Code.WORKLOAD_ARGUMENT, message, loc=caller(), why=why, fix=fix)


def caller() -> SrcLoc | None:
    """The user's line alone: where in the package an argument was found wrong helps nobody."""
    loc = srcloc.here()
    return None if loc is None else replace(loc, inside=None)


def check_counts(workload: str, **counts: object) -> None:
    """CompileError for a number of which there has to be at least one."""
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise refused(
                f"{workload}: {name} is {count!r}, and has to be at least 1",
                "it is how many there are of something",
                f"pass an int of at least 1 for {name}",
            )


def check_dtype(workload: str, dtype: object) -> None:
    """CompileError for elements that attention does not compute with."""
    if dtype not in ATTENTION:
        shown = dtype.text if isinstance(dtype, DType) else repr(dtype)
        raise refused(
            f"{workload}: dtype is {shown}",
            "it is what queries, keys, values and results are made of",
            "pass DType.F32, DType.F16 or DType.BF16",
        )


def check_f32(workload: str, **tensors: object) -> None:
    """CompileError if a tensor is not of f32, in which the workload computes."""
    for name, tensor in tensors.items():
        dtype = getattr(tensor, "dtype", None)
        if isinstance(dtype, DType) and dtype is not DType.F32:
            raise refused(
                f"{workload}: {name} is {dtype.text}",
                "the workload computes in f32 only, from tensors of f32",
                f"convert it: {name}.astype(np.float32), or {name}.float() of PyTorch",
            )
