"""How decode attention is cut and compiled for a GPU: one place for operators and benchmarks."""

from dataclasses import dataclass
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.workloads.attention import paged_decode
from pto_wsp.workloads.cutting import Tier, chunk_unit

_ANY = 1 << 30  # a limit that no sequence reaches


@dataclass(frozen=True, slots=True)
class GpuDecode:
    """Settings of `paged_decode` for `target="cuda"`, the same for every batch: measured on an
    H200 with 32 heads, 8 KV heads of 128 and pages of 16 (benchmarks/gpu/decode.py)."""

    block: int = 128  # keys at a time
    chunk: int = 512  # tokens of a task, at least
    warps: int = 4
    stages: int = 2
    blocks_per_sm: int = 2
    waves: float = 1.0  # tasks for each block of threads, about, if all lengths are alike
    uneven: int = 3  # times as many if they are not
    check_pages: bool = False  # each run, that page numbers are inside the pool: 1 to 2 us

    def workload(
        self,
        heads: int,
        kv_heads: int,
        dim: int,
        page: int,
        dtype: DType,
        scale: float | None = None,
    ) -> Any:
        """`paged_decode` with these settings."""
        return paged_decode(
            *(heads, kv_heads, dim, page, dtype),
            tiers=(Tier(_ANY, self.block, self._chunk(page)),),
            scale=scale,
            exact=False,
            uneven=self.uneven,
            merged=8,
        )

    @property
    def options(self) -> dict[str, int]:
        """Options of `compile`."""
        return {
            "num_warps": self.warps,
            "num_stages": self.stages,
            "blocks_per_sm": self.blocks_per_sm,
            "check_pages": self.check_pages,
        }

    def blocks(self, workers: int, kv_heads: int) -> int:
        """What all sequences together are cut into, about, by so many blocks of threads."""
        return max(1, int(self.waves * workers / kv_heads))

    def longest_cut(self, page: int, limit: int, blocks: int) -> list[int]:
        """Lengths, of at most `limit` tokens, of single sequences one of which is cut into as many
        chunks as any sequence is, together with whatever others."""
        size = self._chunk(page)
        most = min(limit, blocks * self.uneven * size)
        return sorted({min(limit, 1), most // size * size, most})

    def _chunk(self, page: int) -> int:
        """The least tokens of a task, in whole units of chunks."""
        unit = chunk_unit(page)
        return -(-self.chunk // unit) * unit
