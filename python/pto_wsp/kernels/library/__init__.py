"""Ready kernels: `from pto_wsp import kernels`, then `kernels.softmax(8, 4096)`.

Each function makes a kernel for tiles of a shape, once; the kernel is used like any other, in
workloads or alone with `.run(...)`. Sums and products are in f32 whatever the tiles hold.
"""

from pto_wsp.kernels.library.attention import decode as decode
from pto_wsp.kernels.library.attention import flash_attention as flash_attention
from pto_wsp.kernels.library.attention import merge_partials as merge_partials
from pto_wsp.kernels.library.attention import rope as rope
from pto_wsp.kernels.library.linear import dequantise as dequantise
from pto_wsp.kernels.library.linear import gemm as gemm
from pto_wsp.kernels.library.linear import silu_mul as silu_mul
from pto_wsp.kernels.library.norm import layernorm as layernorm
from pto_wsp.kernels.library.norm import rmsnorm as rmsnorm
from pto_wsp.kernels.library.norm import softmax as softmax
from pto_wsp.kernels.library.router import topk_router as topk_router
