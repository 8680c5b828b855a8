"""A LLaMA layer and a small model against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import DenseDyn, PagedTensor, Tensor
from pto_wsp.workloads import (
    KvCache,
    LlamaModel,
    LlamaShape,
    llama_layer,
    page_pool,
    random_model,
)

torch = pytest.importorskip("torch")
from benchmarks.llm_model.torch_model import TorchLlama  # noqa: E402  (needs torch)

# Tiles of three sequences, chunks of 16 keys taken 8 at a time: few sequences are whole tiles.
SHAPE = LlamaShape(
    d_model=48, heads=6, kv_heads=2, d_ff=80, head_dim=32, rows=3, cols=16, chunk=16, keys=8
)
LAYERS = 2
LENS = [0, 1, 15, 16, 41]


@pytest.fixture(autouse=True)
def one_thread_of_torch():
    """The matrices are tiny: a second thread would only wait for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(lens: list[int] = LENS, *, together: int = 1, seed: int = 0) -> LlamaModel:
    sizes = {"layers": LAYERS, "vocab": 112, "steps": 101, "page": 8}
    return random_model(SHAPE, lens, **sizes, together=together, seed=seed)


def relative(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_one_layer(target: str) -> None:
    given, which = model(), 1
    exact = TorchLlama(given, torch.float64)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((len(LENS), SHAPE.d_model), np.float32)
    wanted = exact.layer(which, torch.from_numpy(x).double()).numpy()
    table = Tensor(data=given.cache.reserve(given.lens + 1), name="table")
    of_layers = {n: w for n, w in given.weights.items() if n not in ("embed", "norm_out", "head")}
    work = llama_layer(SHAPE)(
        batch=DenseDyn(len(LENS)),
        layer=which,
        lens=given.lens,
        x=Tensor(data=x),
        K=PagedTensor(given.cache.keys, table),
        V=PagedTensor(given.cache.values, table),
        cos=Tensor(data=exact.cos.numpy().astype(np.float32)),
        sin=Tensor(data=exact.sin.numpy().astype(np.float32)),
        **{name: Tensor(data=array) for name, array in of_layers.items()},
    )
    with work.compile(target=target) as program:
        program.execute()
    assert relative(x, wanted) < 1e-6
    for b, length in enumerate(LENS):
        found = given.cache.tokens(which, b, length + 1)
        for cache, ours in zip((exact.keys, exact.values), found, strict=True):
            wanted = cache[which, b, :, : length + 1].transpose(0, 1).numpy()
            assert relative(ours, wanted) < 1e-6


def test_a_hundred_steps_of_one_plan() -> None:
    """Caches grow over page and chunk borders; nothing is compiled after the first step."""
    given = model()
    exact = TorchLlama(given, torch.float64)
    with given.workload().compile(num_threads=2) as program:
        plan, columns = program.plan, set[int]()
        for _ in range(100):
            tokens = torch.from_numpy(given.tokens[0, :, 0].copy()).long()
            bound = given.bindings()
            columns.add(bound["table"].shape[1])
            program.execute(**bound)
            logits = exact.step(tokens).numpy()
            assert relative(given.logits[0], logits) < 1e-5
            assert given.advance()[0].tolist() == logits.argmax(axis=1).tolist()
        assert program.plan is plan
    assert len(columns) > 5  # the table was bound in several widths
    assert given.lens.tolist() == [length + 100 for length in LENS]


def test_several_steps_in_one_run() -> None:
    one, many = model(together=7), model(together=7)
    with one.workload().compile(num_threads=2) as program:
        single = []
        for _ in range(14):
            program.execute(**one.bindings())
            single += one.advance().tolist()
    with many.workload().compile(num_threads=2) as program:
        together = []
        for _ in range(2):
            program.execute(**many.bindings(7))
            together += many.advance(7).tolist()
    assert together == single
    assert np.array_equal(many.logits, one.logits)
    assert len({tuple(row) for row in single}) > 7  # and they are no constants


def test_fewer_layers_and_other_sequences_need_no_other_plan() -> None:
    given = model()
    with given.workload().compile(num_threads=2) as program:
        program.execute(**given.bindings())
        tasks = program.stats.tasks
        program.execute(**given.bindings(), layers=1)
        per_layer = tasks - program.stats.tasks
        program.execute(**given.bindings(), layers=0)
        assert program.stats.tasks == tasks - 2 * per_layer
        other = model([4, 33], seed=3)
        names = {"tokens": other.tokens, "logits": other.logits, **other.weights}
        pools = {"keys": other.cache.keys, "values": other.cache.values}
        exact = TorchLlama(other, torch.float64)
        program.execute(**other.bindings(), **names, **pools, batch=2, layers=2)
    wanted = exact.step(torch.from_numpy(other.tokens[0, :, 0]).long()).numpy()
    assert relative(other.logits[0], wanted) < 1e-6


def test_no_races_and_the_same_on_the_reference() -> None:
    given, again = model([2, 17], together=2), model([2, 17], together=2)
    with given.workload().compile(verify="full") as program:
        program.execute(**given.bindings(2))
        tasks = program.task_hash(**given.bindings(2))
    with again.workload().compile(target="reference") as program:
        program.execute(**again.bindings(2))
        assert program.task_hash(**again.bindings(2)) == tasks
    assert relative(again.logits, given.logits) < 1e-6
    assert np.array_equal(again.tokens, given.tokens)


def test_a_cache_gives_and_takes_pages() -> None:
    cache = KvCache(layers=2, sequences=3, pages=5, page=4, kv_heads=1, head_dim=2)
    table = cache.reserve([5, 0, 4])
    assert table.shape == (6, 2)
    pages = [*table[0], table[2, 0]]
    assert len(set(pages)) == 3
    assert (table[3:] - table[:3])[[0, 0, 2], [0, 1, 0]].tolist() == [5, 5, 5]
    with pytest.raises(MemoryError, match="all 5 pages"):
        cache.reserve([5, 12, 4])
    cache.release(1)
    cache.release(0)
    assert cache.reserve([0, 16, 4]).shape == (6, 4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"heads": 5}, "5 is no multiple of 2"),
        ({"cols": 20}, "32 is no multiple of 20"),
        ({"d_ff": 81}, "81 is no multiple of 16"),
    ],
)
def test_sizes_that_do_not_fit(wrong: dict[str, int], text: str) -> None:
    sizes = {"d_model": 48, "heads": 6, "kv_heads": 2, "d_ff": 80, "head_dim": 32, "cols": 16}
    with pytest.raises(ValueError, match=text):
        LlamaShape(**{**sizes, **wrong})


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pools_begin_at_a_cache_line(dtype: Any) -> None:
    pools = [page_pool((3, 4, 2, 5), dtype) for _ in range(8)]
    assert all(pool.ctypes.data % 64 == 0 for pool in pools)
    assert all(pool.shape == (3, 4, 2, 5) and pool.dtype == dtype for pool in pools)
    assert all(pool.flags.c_contiguous and not pool.any() for pool in pools)
