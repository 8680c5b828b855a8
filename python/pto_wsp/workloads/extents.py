"""Extents that a ready workload is made for."""

# Tensors are what a traced workload sees of them.
# pyright: basic
from pto_wsp import PagedTensor, Tensor


def expect(tensor, *extents: int | None, page: int | None = None) -> None:
    """`tensor.expect(...)`. Of what is no such tensor, its use says more."""
    if isinstance(tensor, PagedTensor):
        tensor.expect(*extents, page=page)
    elif isinstance(tensor, Tensor) and page is None:
        tensor.expect(*extents)
