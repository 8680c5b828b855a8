"""A kernel that does nothing: what a node of a CUDA graph costs."""

import triton


@triton.jit
def empty():
    pass
