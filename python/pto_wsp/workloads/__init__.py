"""Ready workloads: `from pto_wsp import workloads`, then `workloads.moe_ffn(64, 6, 2048, 1408)`.

Each function makes a workload for shapes that are fixed, once; it is called with axes, arrays and
tensors like any other workload, given a schedule and compiled.
"""

from pto_wsp.workloads.moe import moe_ffn
from pto_wsp.workloads.sparse_attention import SparseAttentionShape, sparse_attention

__all__ = ["SparseAttentionShape", "moe_ffn", "sparse_attention"]
