"""Ready kernels: `from pto_wsp import kernels`, then `kernels.softmax(8, 4096)`.

Each function makes a kernel for tiles of a shape, once; the kernel is used like any other, in
workloads or alone with `.run(...)`. Sums and products are in f32 whatever the tiles hold.
"""

from pto_wsp.kernels.library.attention import (
    decode,
    flash_attention,
    masked_attention,
    merge_partials,
    rope,
)
from pto_wsp.kernels.library.linear import dequantise, gated_linear, gemm, linear, silu_mul
from pto_wsp.kernels.library.norm import layernorm, rmsnorm, softmax
from pto_wsp.kernels.library.rows import (
    combine_choices,
    gather_choices,
    group_choices,
    select_topk,
)
from pto_wsp.kernels.library.tokens import argmax, embedding, topk_router

__all__ = [
    "argmax",
    "combine_choices",
    "decode",
    "dequantise",
    "embedding",
    "flash_attention",
    "gated_linear",
    "gather_choices",
    "gemm",
    "group_choices",
    "layernorm",
    "linear",
    "masked_attention",
    "merge_partials",
    "rmsnorm",
    "rope",
    "select_topk",
    "silu_mul",
    "softmax",
    "topk_router",
]
