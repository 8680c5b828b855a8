"""Ready workloads: `from pto_wsp import workloads`, then `workloads.paged_decode(32, 8, 128, 16)`.

Each function makes a workload for shapes that are fixed, once; it is called with axes, arrays and
tensors like any other workload, given a schedule and compiled.
"""

from pto_wsp.workloads.attention import DECODE_TIERS, Tier, paged_decode, ragged_prefill

__all__ = ["DECODE_TIERS", "Tier", "paged_decode", "ragged_prefill"]
