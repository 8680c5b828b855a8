"""Operators of PyTorch: what they compute, and that compilers of PyTorch take them."""

# pyright: basic
from __future__ import annotations

import importlib
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from pto_wsp import ExecutionError, torch_ops, workloads
from pto_wsp.backends.cuda import device

torch: Any = importlib.import_module("torch")
WHERE = device.name()
op: Any = torch.ops.pto_wsp.paged_decode


def batch(lengths: list[int], width: int = 8) -> list[Any]:
    """q, k_pool, v_pool, page_table, lens: 4 heads, 2 KV heads of 16, pages of 4 tokens."""
    torch.manual_seed(3)
    count = len(lengths)
    table = torch.randperm(count * width).reshape(count, width).to(torch.int32)
    pools = [torch.randn(count * width, 4, 2, 16) for _ in range(2)]
    found = [torch.randn(count, 4, 16), *pools, table, torch.tensor(lengths, dtype=torch.int64)]
    return [each.to(WHERE) for each in found]


def attention(q: Any, k_pool: Any, v_pool: Any, table: Any, lens: Any) -> Any:
    out = torch.zeros_like(q)
    for b, length in enumerate(lens.tolist()):
        if length:
            k, v = (pool[table[b].long()].flatten(0, 1)[:length] for pool in (k_pool, v_pool))
            k, v = (each.repeat_interleave(2, dim=1).float() for each in (k, v))
            scores = torch.einsum("hd,thd->ht", q[b].float(), k) / math.sqrt(q.shape[2])
            out[b] = torch.einsum("ht,thd->hd", scores.softmax(1), v).to(q.dtype)
    return out


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the host are for `cpu_sim`, unless the interpreter plays the GPU. Two tiers have
    fewer kernels to compile than all."""
    monkeypatch.setattr(device, "is_interpreted", lambda: False)
    tiers = (workloads.Tier(8, 8, 0), workloads.Tier(99, 16, 64))
    monkeypatch.setattr(workloads, "paged_decode", partial(workloads.paged_decode, tiers=tiers))


def test_it_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    if WHERE == "cpu":  # the interpreter is slow
        monkeypatch.setattr(
            torch_ops, "GPU", workloads.GpuDecode(block=8, chunk=8, blocks_per_sm=1)
        )
    given = batch([3, 0, 9])
    torch.testing.assert_close(op(*given), attention(*given))
    torch_ops.synchronize()
    assert torch_ops._programs[-1].target == "cuda"


def test_on_the_host(on_host: None) -> None:
    for lengths in ([3, 0, 30], [1, 32, 7], [5, 5]):
        given = batch(lengths)
        torch.testing.assert_close(op(*given), attention(*given))
    if WHERE == "cpu":
        assert torch_ops._programs[-1].target == "cpu_sim"


def test_a_program_for_each_class(on_host: None) -> None:
    op(*batch([3, 2]))
    before = len(torch_ops._programs)
    op(*batch([1, 1, 4]))
    assert len(torch_ops._programs) == before  # whatever the batch
    given = batch([3, 2])
    given[4] = given[4].to(torch.int32)
    torch.testing.assert_close(op(*given), attention(*given))
    assert len(torch_ops._programs) <= before + 1
    assert op(*batch([])).shape == (0, 4, 16)


def test_pools_of_any_strides(on_host: None) -> None:
    given = batch([9, 30])
    given[1] = given[1].swapaxes(1, 2).contiguous().swapaxes(1, 2)  # by KV head, then token
    given[0] = given[0].swapaxes(0, 1).contiguous().swapaxes(0, 1)
    torch.testing.assert_close(op(*given), attention(*given))


def test_schema_and_fake_kernel(on_host: None) -> None:
    torch.library.opcheck(op.default, tuple(batch([3, 9])), {"blocks": 3, "scale": 0.5})


def test_compiled_whole(on_host: None) -> None:
    def step(q: Any, *rest: Any) -> Any:
        return op(q * 2.0, *rest) + 1.0

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for lengths in ([3, 9], [4, 1, 30]):
        q, *rest = batch(lengths)
        torch.testing.assert_close(compiled(q, *rest), attention(2.0 * q, *rest) + 1.0)


def test_exported(on_host: None) -> None:
    class Step(torch.nn.Module):
        def forward(self, *given: Any) -> Any:
            return op(*given)

    given = tuple(batch([3, 9]))
    exported = torch.export.export(Step(), given)
    torch.testing.assert_close(exported.module()(*given), attention(*given))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({0: lambda q: q[0]}, "q has 2 dimensions, not 3"),
        ({0: lambda q: q.double()}, "q is torch.float64"),
        ({1: lambda k: k.half()}, "k_pool is torch.float16, q is torch.float32"),
        ({2: lambda v: v[:, :, :1]}, "v_pool is"),
        ({3: lambda t: t.float()}, "page_table is torch.float32"),
        ({4: lambda n: n[:1]}, "lens is for 1 of 2"),
        ({0: lambda q: q[:, :3]}, "3 heads do not share 2 evenly"),
    ],
)
def test_what_it_refuses(change: dict[int, Any], told: str) -> None:
    given = batch([3, 9])
    for at, changed in change.items():
        given[at] = changed(given[at])
    with pytest.raises(ValueError, match=told):
        op(*given)
    with torch._subclasses.FakeTensorMode() as fake:
        fakes = [fake.from_tensor(each) for each in given]
        with pytest.raises(ValueError, match=told):
            op(*fakes)


def test_errors_come_with_the_user_s_run(on_host: None) -> None:
    """A length for which the page table has no room."""

    def run(*given: Any) -> None:
        op(*given)
        torch_ops.synchronize()

    with pytest.raises(ExecutionError, match="outside"):
        run(*batch([3, 33]))
    torch.testing.assert_close(op(*batch([3, 9])), attention(*batch([3, 9])))


def chunks(length: int, blocks: int, page: int, others: list[int], chunk: int) -> int:
    """Into how many chunks `paged_decode` cuts the first sequence, by its definition."""

    def up(n: int, by: int) -> int:
        return -(-n // by)

    lens, unit = [length, *others], page * max(1, 64 // page)
    total = sum(lens)
    if max(lens) * len(lens) > total + total // 8:
        blocks *= torch_ops.GPU.uneven
    size = max(up(total, blocks * unit) * unit, unit, up(chunk, unit) * unit)
    parts = max(up(length - size // 4, size), 1)
    size = up(up(length, parts), unit) * unit
    return up(length, size) if length else 1


def test_room_for_every_length() -> None:
    """No length, with whatever others, needs more than those that room is made for."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        page, blocks = int(rng.choice([1, 16, 48, 128])), int(rng.integers(1, 50))
        limit, chunk = int(rng.integers(1, 3000)) * page, int(rng.choice([8, 100, 512]))
        longest = replace(torch_ops.GPU, chunk=chunk).longest_cut(page, limit, blocks)
        assert all(0 <= n <= limit for n in longest)
        room = max(chunks(n, blocks, page, [0, 0], chunk) for n in longest)
        for _ in range(20):
            length, *others = (int(n) for n in rng.integers(0, limit + 1, 3))
            shorter = [n // int(rng.choice([1, 9, 1 << 20])) for n in others]
            assert chunks(length, blocks, page, shorter, chunk) <= room


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # that of a refused capture
def test_captured_in_a_graph() -> None:
    """One graph serves all lengths that the page table has room for."""
    given = batch([3, 9])
    with pytest.raises(RuntimeError, match="call it once before"):
        _capture(batch([1, 1, 1, 1, 1]))
    op(*given)
    graph, out = _capture(given)
    for lengths in ([1, 0], [32, 32], [32, 1]):
        given[4].copy_(torch.tensor(lengths))
        graph.replay()
        torch.testing.assert_close(out, attention(*given))
        other = batch([7, 7, 7], width=64)  # needs more room, beside what the graph has
        torch.testing.assert_close(op(*other), attention(*other))
    torch_ops.synchronize()


def _capture(given: list[Any]) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op(*given)
    return graph, out
