"""Heads that a workload is given, compared with those that it is made for."""

# Tensors are what a traced workload sees of them.
# pyright: basic
from pto_wsp import Tensor, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError


def check_heads(dim: int, count: int, **tensors) -> None:
    """CompileError if a tensor is known to have another number of heads."""
    for name, tensor in tensors.items():
        extents = tensor.extents() if isinstance(tensor, Tensor) else ()
        heads = extents[dim] if dim < len(extents) else None
        if isinstance(heads, int) and heads != count:
            raise CompileError(
                Code.WORKLOAD_ARGUMENT,
                f"{name} has {heads} heads",
                loc=srcloc.here(),
                why=f"the workload is made for {count} of them",
                fix="make it for the heads that there are, or pass a tensor that fits",
            )
