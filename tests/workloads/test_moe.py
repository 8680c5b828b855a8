"""Mixture of experts against torch in float64."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp import Affinity, CompileError, Program, ReadyPolicy, Tensor, TracePolicy, workloads
from pto_wsp.error_codes import Code

EXPERTS, D_MODEL, D_FF, CHUNK, COLS = 8, 40, 72, 16, 32
NEAR = 2e-6  # relative to the largest number
# Tasks for one chunk of an expert's tokens: one that gathers, and two products in columns.
PER_CHUNK = 1 + -(-D_FF // COLS) + -(-D_MODEL // COLS)


def numbers(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@functools.cache
def weights() -> dict[str, Any]:
    return {
        "router": numbers(EXPERTS, D_MODEL, seed=1),
        "W1": numbers(EXPERTS, D_FF, D_MODEL, seed=2) / 6,
        "W3": numbers(EXPERTS, D_FF, D_MODEL, seed=3) / 6,
        "W2": numbers(EXPERTS, D_MODEL, D_FF, seed=4) / 8,
    }


def exact(x: Any, top_k: int, router: Any) -> Any:
    """The layer token by token."""
    torch = pytest.importorskip("torch")
    given = {**weights(), "router": router, "x": x}
    wide = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
    best, chosen = torch.topk(wide["x"] @ wide["router"].T, top_k, dim=1)
    shares = torch.softmax(best, dim=1)
    y = torch.zeros_like(wide["x"])
    for t, token in enumerate(wide["x"]):
        for share, e in zip(shares[t], chosen[t], strict=True):
            opened = torch.nn.functional.silu(wide["W1"][e] @ token)
            y[t] += share * (wide["W2"][e] @ (opened * (wide["W3"][e] @ token)))
    return y.numpy()


def work(top_k: int, tokens: int = 1) -> Any:
    layer = workloads.moe_ffn(EXPERTS, top_k, D_MODEL, D_FF, chunk=CHUNK, cols=COLS)
    tensors = {name: Tensor(data=value) for name, value in weights().items()}
    x, y = np.zeros((2, tokens, D_MODEL), np.float32)
    return layer(X=Tensor(data=x), Y=Tensor(data=y), **tensors)


def run(program: Program, tokens: int, top_k: int = 2, **bound: Any) -> tuple[Any, Any, Any]:
    """Runs the program on some tokens; those, what it says of them, and who was asked. All elements
    are positive, so that a router can prefer an expert whatever the token."""
    x = np.abs(numbers(tokens, D_MODEL, seed=tokens))
    y = np.zeros_like(x)
    program.execute(X=x, Y=y, **bound)
    logits = x.astype(np.float64) @ bound.get("router", weights()["router"]).T
    return x, y, np.argsort(-logits, axis=1, kind="stable")[:, :top_k]


def check(program: Program, tokens: int, top_k: int = 2, **bound: Any) -> Any:
    """The same, and that it is right."""
    x, y, _ = run(program, tokens, top_k, **bound)
    expected = exact(x, top_k, bound.get("router", weights()["router"]))
    assert np.abs(y - expected).max() <= NEAR * np.abs(expected).max()
    return y


def test_numbers_of_tokens_without_compiling_again() -> None:
    with work(2).compile(num_threads=2) as program:
        for tokens in (1, 7, 16, 33, 133):
            check(program, tokens)
        program.execute(X=np.zeros((0, D_MODEL), np.float32), Y=np.zeros((0, D_MODEL), np.float32))
        assert program.stats.tasks == 1  # it groups no tokens


def test_on_the_reference() -> None:
    check(work(2).compile(target="reference"), 21)


@pytest.mark.parametrize("mode", ["full", "schedule"])
def test_verified(mode: str) -> None:
    check(work(2).compile(verify=mode), 21)


def test_the_same_bits_under_any_schedule() -> None:
    base, found = work(2), []
    stealing = base.task_graph(ready=ReadyPolicy.work_steal())
    for each, threads in ((base, 1), (base, 2), (stealing, 3)):
        with each.compile(num_threads=threads) as program:
            found.append(run(program, 70)[1])
    assert all(np.array_equal(found[0], y) for y in found)


def test_schedules_name_its_loops() -> None:
    placed = work(2).affinity(expert=Affinity.CORE_LOCAL)
    program = placed.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2)
    run(program, 40)
    trace = program.trace
    gated = trace[trace["kernel"] == "gated_linear"]
    assert np.array_equal(gated["worker"], gated["indices"][:, 0] % 2)


def no_tokens_for(experts: list[int]) -> Any:
    router = weights()["router"].copy()
    router[experts] = -10
    return router


def all_tokens_for(expert: int) -> Any:
    router = np.zeros_like(weights()["router"])
    router[expert] = 1
    return router


@pytest.mark.parametrize(
    ("top_k", "router"), [(2, no_tokens_for([0, 3, 7])), (1, all_tokens_for(5))]
)
def test_uneven_routers(top_k: int, router: Any) -> None:
    with work(top_k).compile(num_threads=2) as program:
        check(program, 70, top_k, router=router)


def test_experts_without_tokens_are_no_tasks() -> None:
    router = no_tokens_for([0, 3, 7])
    tokens = 50
    traced = work(2).task_graph(trace=TracePolicy.timestamps()).compile()
    _, _, chosen = run(traced, tokens, router=router)
    asked, counts = np.unique(chosen, return_counts=True)
    assert set(asked) == {1, 2, 4, 5, 6}
    trace = traced.trace
    of_experts = np.isin(trace["kernel"], ["gather_choices", "gated_linear"])
    assert set(trace["indices"][of_experts, 0]) == set(asked)
    chunks, tiles = -(-counts // CHUNK), -(-tokens // CHUNK)
    assert traced.stats.tasks == chunks.sum() * PER_CHUNK + 3 * tiles + 1


def test_one_expert_for_all_tokens_balances() -> None:
    tokens = 200
    costs = TracePolicy.cycles(lambda t: 1)  # two workers that take equally long for a task
    program = work(1).task_graph(trace=costs).compile(num_threads=2)
    _, _, chosen = run(program, tokens, 1, router=all_tokens_for(5))
    assert set(chosen.ravel()) == {5}
    trace = program.trace
    gated = trace[trace["kernel"] == "gated_linear"]
    assert set(gated["indices"][:, 0]) == {5}
    rows = np.minimum(CHUNK, tokens - gated["indices"][:, 1] * CHUNK)
    assert rows.sum() == tokens * -(-D_FF // COLS)
    for worker in (0, 1):
        assert abs(rows[gated["worker"] == worker].sum() / rows.sum() - 0.5) < 0.05


@pytest.mark.parametrize("name", ["router", "W2"])
def test_other_dtypes_are_refused(name: str) -> None:
    layer = workloads.moe_ffn(EXPERTS, 2, D_MODEL, D_FF, chunk=CHUNK, cols=COLS)
    given = {**weights(), "X": np.zeros((1, D_MODEL), np.float32)}
    given["Y"] = given["X"].copy()
    given[name] = given[name].astype(ml_dtypes.bfloat16)
    with pytest.raises(CompileError, match=f"moe_ffn: {name} is bf16") as caught:
        layer(**{each: Tensor(data=array) for each, array in given.items()}).compile()
    assert caught.value.code is Code.WORKLOAD_ARGUMENT
