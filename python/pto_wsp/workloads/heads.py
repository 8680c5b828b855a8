"""Heads that a workload is given, compared with those that it is made for."""

# Axes and tensors are what a traced workload sees of them.
# pyright: basic
import inspect

from pto_wsp import Dense, DenseDyn, Tensor, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axis_params import AxisParam, extent_of
from pto_wsp.frontend.trace import current


def check_axis(name: str, axis, count: int) -> None:
    """CompileError if an axis is known to have another number of elements."""
    given = axis.axis if isinstance(axis, AxisParam) else axis
    extent = given.extent if isinstance(given, Dense | DenseDyn) else given
    if isinstance(extent, int) and extent != count:
        raise _error(
            f"axis {name} has the extent {extent}",
            f"it has an element for each task of a sequence, and there are {count}",
            f"pass DenseDyn({count}) for it",
        )


def check_heads(name: str, tensor: Tensor, dim: int, count: int) -> None:
    """CompileError if a tensor is known to have another number of heads."""
    extents = tensor.extents() if isinstance(tensor, Tensor) else ()
    heads = extents[dim] if dim < len(extents) else None
    if isinstance(heads, int) and heads != count:
        raise _error(
            f"{name} has {heads} heads",
            f"the workload is made for {count} of them",
            "make it for the heads that there are, or pass a tensor that fits",
        )


def elements_of(axis):
    """How many elements an axis has in a run."""
    return extent_of(current("an axis"), axis, None) if isinstance(axis, AxisParam) else axis


def _error(what: str, why: str, fix: str) -> CompileError:
    """At the call of the workload: of the whole one, or inside another."""
    tracer = current("a workload")
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(srcloc.PACKAGE_DIR):
        frame = frame.f_back
    loc = srcloc.of_frame(frame) if tracer.depth else tracer.scope.loc
    return CompileError(Code.WORKLOAD_ARGUMENT, what, loc=loc, why=why, fix=fix)
