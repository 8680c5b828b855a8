"""Ready workloads: `from pto_wsp import workloads`, then `workloads.llama_step(shape)(...)`.

Each function makes a workload for sizes that are fixed in a plan, once; it is called with axes,
arrays and tensors like any other, alone or inside another workload.
"""

from pto_wsp.workloads.kv_cache import KvCache
from pto_wsp.workloads.llama import LlamaShape, llama_layer, llama_step
from pto_wsp.workloads.llama_model import LlamaModel, random_model, rope_tables

__all__ = [
    "KvCache",
    "LlamaModel",
    "LlamaShape",
    "llama_layer",
    "llama_step",
    "random_model",
    "rope_tables",
]
