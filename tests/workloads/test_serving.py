"""New tokens go into pages, and a step of a server as a graph of ready workloads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    PagedTensor,
    ReadyPolicy,
    StartPolicy,
    Tensor,
    TracePolicy,
    select,
    workloads,
)
from pto_wsp.workloads import KvCache

EXAMPLE = Path(__file__).parents[2] / "examples/18_prefill_decode/main.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("prefill_decode", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_new_tokens_go_to_the_end_of_their_sequences(target: str) -> None:
    rng = np.random.default_rng(0)
    heads, dim, page = 2, 20, 4
    past, new = np.array([0, 5, 8, 3, 4, 7]), np.array([3, 1, 9, 0, 4, 1])
    starts = np.concatenate([[0], np.cumsum(new)])
    cache = KvCache(layers=1, sequences=6, pages=20, page=page, kv_heads=heads, head_dim=dim)
    table = cache.reserve(past + new)
    old = [rng.standard_normal((2, length, heads, dim), np.float32) for length in past]
    for b, given in enumerate(old):
        cache.fill(0, b, *given)
    k, v = rng.standard_normal((2, starts[-1], heads, dim), np.float32)
    work = workloads.paged_append(dim, page)(
        DenseDyn(6),
        starts,
        past,
        Tensor(data=k),
        Tensor(data=v),
        PagedTensor(cache.keys, table),
        PagedTensor(cache.values, table),
    )
    options = {"verify": "full", "num_threads": 2} if target == "cpu_sim" else {}
    work.compile(target=target, **options).execute()
    for b, length in enumerate(past + new):
        mine = slice(starts[b], starts[b + 1])
        wanted = [
            np.concatenate([before, x[mine]]) for before, x in zip(old[b], (k, v), strict=True)
        ]
        assert np.array_equal(cache.tokens(0, b, length), wanted)


def test_rows_and_pages_have_elements() -> None:
    with pytest.raises(CompileError, match="paged_append: dim is 0"):
        workloads.paged_append(0, 4)


def made(new: int, running: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return example().Step(rng.integers(1, 150, new), rng.integers(1, 150, running), rng)


def by_torch(step: Any) -> tuple[Any, Any]:
    """What decode and prefill should say, in float64."""
    torch = pytest.importorskip("torch")
    decoded, prefilled = np.zeros(step.out.shape), np.zeros(step.prompt_out.shape)

    def attend(q: Any, kv: Any, *, causal: bool) -> Any:
        q, k, v = (torch.from_numpy(x.astype(np.float64)).transpose(0, 1)[None] for x in (q, *kv))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return sdpa(q, k, v, is_causal=causal, enable_gqa=True)[0].transpose(0, 1).numpy()

    for b, old in enumerate(step.old):
        mine = slice(step.starts[b], step.starts[b + 1])
        kv = [np.concatenate([old[:, i], x[mine]]) for i, x in enumerate((step.k, step.v))]
        decoded[b] = attend(step.q[b : b + 1], kv, causal=False)[0]
        if b < step.new:
            prefilled[mine] = attend(step.prompt_q[mine], kv, causal=True)
    return decoded, prefilled


def test_a_step_is_right() -> None:
    """Also a second one, of other sequences, with the plan of the first; and equal numbers of new
    and of all sequences change no name."""
    first = made(3, 4)
    with first.workload().compile(num_threads=2) as program:
        for step in (first, made(2, 6, seed=1), made(3, 0, seed=2)):
            program.execute(**step.bindings())
            for found, wanted in zip((step.out, step.prompt_out), by_torch(step), strict=True):
                assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()
    alone = made(3, 0).workload().compile(target="reference")
    assert alone.bindings.keys() == program.bindings.keys()


def test_nothing_races() -> None:
    step = made(2, 3)
    with step.workload().compile(num_threads=2, verify="full") as program:
        program.execute()
    assert step.error() < 2e-6


def test_decode_waits_for_the_pages_of_its_own_sequence() -> None:
    module, step = example(), made(3, 4)
    first = ReadyPolicy.priority(lambda t: select(t.get("head", -1) < 0, 1, 0))  # prefill is last
    held = {"trace": TracePolicy.cycles(lambda t: 100), "start": StartPolicy.after_orchestration()}
    program = step.workload().task_graph(**held, ready=first).compile(num_threads=3).execute()
    prefill, append, decode = range(3)
    found = module.waits(program)
    across = found[found[:, 0] != found[:, 2]]
    assert set(across[:, 0]) == {decode}
    assert set(across[:, 2]) == {append}
    assert np.array_equal(across[:, 1], across[:, 3])
    # Every KV head's decode waits for each page that its sequence got.
    pages = [
        -(-end // module.PAGE) - past // module.PAGE
        for past, end in zip(step.past, step.lens, strict=True)
    ]
    assert np.bincount(across[:, 1]).tolist() == [module.KV_HEADS * count for count in pages]

    # A sequence decodes before others are prefilled.
    trace, stage = program.trace, module.stages_of(program)
    sequence = trace["indices"][:, 0]
    decoded = trace["start_ns"][(stage == decode) & (sequence == 0)].min()
    others = trace["end_ns"][(stage == prefill) & (sequence > 0)].max()
    assert decoded < others
