"""Ready workloads: `from pto_wsp import workloads`, then `workloads.paged_decode(32, 8, 128, 16)`.

Each function makes a workload for sizes that are fixed in a plan, once; it is called with axes,
arrays and tensors like any other, alone or inside another workload, given a schedule and compiled.
"""

from pto_wsp.workloads.append import paged_append
from pto_wsp.workloads.attention import paged_decode, ragged_prefill
from pto_wsp.workloads.cutting import DECODE_TIERS, Tier
from pto_wsp.workloads.gpu_decode import GpuDecode
from pto_wsp.workloads.kv_cache import KvCache, page_pool
from pto_wsp.workloads.llama import LlamaShape, llama_layer, llama_step
from pto_wsp.workloads.llama_model import LlamaModel, random_model, rope_tables
from pto_wsp.workloads.moe import moe_ffn
from pto_wsp.workloads.sparse_attention import SparseAttentionShape, sparse_attention

__all__ = [
    "DECODE_TIERS",
    "GpuDecode",
    "KvCache",
    "LlamaModel",
    "LlamaShape",
    "SparseAttentionShape",
    "Tier",
    "llama_layer",
    "llama_step",
    "moe_ffn",
    "page_pool",
    "paged_append",
    "paged_decode",
    "ragged_prefill",
    "random_model",
    "rope_tables",
    "sparse_attention",
]
