"""A LLaMA layer and a small model against torch in float64."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.llm_model.child import PROMPTS, VOCAB
from benchmarks.llm_model.child import SHAPE as MEASURED
from pto_wsp import CompileError, DenseDyn, ExecutionError, PagedTensor, Tensor
from pto_wsp.error_codes import Code
from pto_wsp.workloads import (
    LlamaModel,
    LlamaShape,
    llama_layer,
    random_model,
)

# Tiles of three sequences, chunks of 16 keys taken 8 at a time: few sequences are whole tiles.
SHAPE = LlamaShape(
    d_model=48, heads=6, kv_heads=2, d_ff=80, head_dim=32, rows=3, cols=16, chunk=16, keys=8
)
LAYERS = 2
LENS = [0, 1, 15, 16, 41]


def model(lens: list[int] = LENS, *, together: int = 1, seed: int = 0, **other: int) -> LlamaModel:
    sizes = {"layers": LAYERS, "vocab": 112, "steps": 101, "page": 8, **other}
    return random_model(SHAPE, lens, **sizes, together=together, seed=seed)


def in_float64(given: LlamaModel) -> Any:
    """The same model in torch."""
    torch = pytest.importorskip("torch")
    from benchmarks.llm_model.torch_model import TorchLlama

    return TorchLlama(given, torch.float64)


def next_logits(exact: Any, given: LlamaModel) -> Any:
    """What torch says behind the tokens that the model stands at."""
    torch = pytest.importorskip("torch")
    return exact.step(torch.from_numpy(given.tokens[0, :, 0].copy()).long()).numpy()


def relative(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_one_layer(target: str) -> None:
    torch = pytest.importorskip("torch")
    given, which = model(), 1
    exact = in_float64(given)
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


def test_a_hundred_steps_of_one_plan(compilations: list[str]) -> None:
    """Caches grow over page and chunk borders; nothing is compiled after the first step."""
    given = model()
    exact = in_float64(given)
    with given.workload().compile(num_threads=2) as program:
        plan, columns = program.plan.to_bytes(), set[int]()
        assert compilations == ["trace", "lower", "load", "load_kernels"]
        for _ in range(100):
            logits = next_logits(exact, given)
            bound = given.bindings()
            columns.add(bound["table"].shape[1])
            program.execute(**bound)
            assert relative(given.logits[0], logits) < 1e-5
            assert given.advance()[0].tolist() == logits.argmax(axis=1).tolist()
        assert program.plan.to_bytes() == plan
    assert len(compilations) == 4
    assert len(columns) > 5  # the table was bound in several widths
    assert given.lens.tolist() == [length + 100 for length in LENS]


def test_memory_does_not_grow_with_steps(compilations: list[str]) -> None:
    """Steps of as many tasks each, while sequences and page tables grow: what the core allocates,
    what tasks are given to work in, and what Python holds stay as they were."""
    given = random_model(
        LlamaShape(d_model=48, heads=6, kv_heads=2, d_ff=80, head_dim=32, rows=3, cols=16),
        [0, 3, 40],
        layers=LAYERS,
        vocab=50,
        steps=60,
        page=4,
    )
    with given.workload().compile(num_threads=2) as program:
        compiled = len(compilations)
        seen = np.zeros((60, 3), np.int64)  # made before: the steps are not to need new memory
        held = np.zeros(60, np.int64)
        tracemalloc.start()
        for step in range(60):
            program.execute(**given.bindings())
            given.advance()
            stats = program.stats
            seen[step] = stats.tasks, stats.memory_bytes, stats.workspace_bytes
            if step in (19, 59):
                gc.collect()
                held[step] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(compilations) == compiled
    tasks, memory, workspace = seen.T
    assert np.unique(tasks).size == np.unique(workspace).size == 1
    # Lists of waiting tasks are as long as workers made them in any step so far, which differs.
    assert 0 < memory.max() < 1.05 * memory.min()
    # A page table is wider by a column of 24 bytes every fourth step, and sequences own its pages.
    assert held[59] - held[19] < 1500


def test_a_step_of_the_measured_model_is_a_thousand_tasks() -> None:
    given = random_model(MEASURED, PROMPTS, layers=8, vocab=VOCAB, steps=1)
    program = given.workload().compile(target="reference")
    assert program.num_tasks(**given.bindings()) >= 1000


@pytest.mark.parametrize("vocab", [1, 5, 16, 113])
def test_any_number_of_words(vocab: int) -> None:
    given = model([0, 5, 17], vocab=vocab)
    given.logits.fill(np.nan)
    wanted = next_logits(in_float64(given), given)
    with given.workload().compile(num_threads=2) as program:
        program.execute(**given.bindings())
    assert relative(given.logits[0], wanted) < 1e-6
    assert given.advance()[0].tolist() == wanted.argmax(axis=1).tolist()


@pytest.mark.parametrize(("lens", "layers"), [([], 2), ([3, 9], 0), ([], 0)])
def test_no_sequences_and_no_layers(lens: list[int], layers: int) -> None:
    given = model(lens, layers=layers)
    with given.workload().compile(num_threads=2) as program:
        program.execute(**given.bindings())
    assert given.advance().shape == (1, len(lens))
    assert not np.isnan(given.logits).any()


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
        wanted = next_logits(in_float64(other), other)
        program.execute(**other.bindings(), **names, **pools, batch=2, layers=2)
    assert relative(other.logits[0], wanted) < 1e-6


@pytest.mark.parametrize("chosen", [[0, 1], [3, 1, 4], [2], []])
def test_some_of_the_sequences(chosen: list[int]) -> None:
    """Others keep what they have; afterwards all of them go on."""
    given = model()
    exact, b = in_float64(given), np.array(chosen, int)
    with given.workload().compile(num_threads=2) as program:
        program.execute(**given.bindings())
        next_logits(exact, given)
        given.advance()
        bound = given.bindings()
        before = given.cache.keys.copy(), given.cache.values.copy()
        tokens, logits = given.tokens[:, b].copy(), given.logits[:, b].copy()
        bound |= {"lens": given.lens[b], "table": given.cache.rows(chosen), "batch": len(chosen)}
        program.execute(**bound, tokens=tokens, logits=logits)
        wanted = next_logits(exact, given)
        if chosen:
            assert relative(logits[0], wanted[b]) < 1e-5
        assert tokens[1, :, 0].tolist() == wanted[b].argmax(axis=1).tolist()
        mine = np.zeros(len(given.cache.keys), bool)
        mine[given.cache.rows(chosen)[given.cache.rows(chosen) >= 0]] = True
        for pool, old in zip((given.cache.keys, given.cache.values), before, strict=True):
            assert np.array_equal(pool[~mine], old[~mine])
        # What was chosen is written once more, with the same keys and values.
        everything = {"tokens": given.tokens, "logits": given.logits, "batch": len(LENS)}
        program.execute(**given.bindings(), **everything)
    assert relative(given.logits[0], wanted) < 1e-5


def test_the_first_sequences_of_a_table_of_more() -> None:
    given = model()
    wanted = next_logits(in_float64(given), given)
    tokens, logits = given.tokens[:, :2].copy(), given.logits[:, :2].copy()
    with given.workload().compile(num_threads=2) as program:
        bound = {**given.bindings(), "lens": given.lens[:2], "batch": 2}
        program.execute(**bound, tokens=tokens, logits=logits)
    assert relative(logits[0], wanted[:2]) < 1e-6
    assert tokens[1, :, 0].tolist() == wanted[:2].argmax(axis=1).tolist()


def test_more_sequences_than_the_table_has() -> None:
    given = model([3, 3, 3, 3, 3])
    bound = {**given.bindings(), "table": given.cache.rows([0, 1, 2, 3])}
    with given.workload().compile(num_threads=2) as program:
        with pytest.raises(ExecutionError, match="'K' are outside") as caught:
            program.execute(**bound)
        assert caught.value.code is Code.OUT_OF_BOUNDS


def test_sequences_come_and_go() -> None:
    """Five requests on two places: each says what it says alone."""
    one, two = model([0], steps=20), model([0, 0], steps=20)
    two.weights = one.weights
    prompts = [[5], [17, 3, 90], [1, 1, 2, 3, 5, 8], [44], [7, 70]]
    wanted = [generate(one, [prompt])[0] for prompt in prompts]
    assert generate(two, prompts) == wanted
    assert len({tuple(text[-5:]) for text in wanted}) > 2


def generate(model: LlamaModel, prompts: list[list[int]], new: int = 12) -> list[list[int]]:
    """Every request in the first place that is free, with all of its tokens, one a step."""
    cache, texts = model.cache, [list(prompt) for prompt in prompts]
    waiting, places = list(range(len(prompts))), dict[int, int]()
    lens = np.zeros(cache.sequences, int)
    vocab = model.logits.shape[2]
    with model.workload().compile(num_threads=2) as program:
        while waiting or places:
            for b in set(range(cache.sequences)) - set(places):
                if waiting:
                    places[b] = waiting.pop(0)
            running = sorted(places)
            cache.reserve([lens[b] + 1 if b in places else 0 for b in range(cache.sequences)])
            tokens = np.zeros((2, len(running), 1), np.int32)
            tokens[0, :, 0] = [texts[places[b]][lens[b]] for b in running]
            program.execute(
                batch=len(running),
                lens=lens[running],
                table=cache.rows(running),
                tokens=tokens,
                logits=np.zeros((1, len(running), vocab), np.float32),
            )
            lens[running] += 1
            for b, token in zip(running, tokens[1, :, 0].tolist(), strict=True):
                text, prompt = texts[places[b]], prompts[places[b]]
                if lens[b] == len(text):
                    text.append(token)
                if len(text) == len(prompt) + new:
                    del places[b]
                    cache.release(b)
                    lens[b] = 0
    return texts


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


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"heads": 5}, "5 heads do not share 2 KV heads evenly"),
        ({"cols": 20}, "head_dim is 32, no multiple of cols=20(.|\\n)*pass cols=16, which"),
        ({"d_ff": 81}, "d_ff is 81, no multiple of cols=16(.|\\n)*pass cols=1, which"),
        ({"d_model": 50}, "d_model is 50, no multiple of cols=16(.|\\n)*pass cols=2, which"),
        ({"head_dim": 24}, "head_dim is 24, no multiple of cols=16(.|\\n)*pass cols=8, which"),
        ({"head_dim": 33, "cols": 1}, "head_dim is 33, which is odd"),
        ({"rows": 0}, "LlamaShape: rows is 0, and has to be at least 1"),
        ({"kv_heads": 0}, "kv_heads is 0"),
    ],
)
def test_sizes_that_do_not_fit(wrong: dict[str, int], text: str) -> None:
    sizes = {"d_model": 48, "heads": 6, "kv_heads": 2, "d_ff": 80, "head_dim": 32, "cols": 16}
    with pytest.raises(CompileError, match=text) as caught:
        LlamaShape(**{**sizes, **wrong})
    assert caught.value.code is Code.WORKLOAD_ARGUMENT
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_a_model_has_words() -> None:
    with pytest.raises(CompileError, match="random_model: vocab is 0"):
        model(vocab=0)


def test_a_model_has_positions() -> None:
    given = model(steps=3)
    with pytest.raises(ExecutionError, match="longer than 44 tokens") as caught:
        given.bindings(4)
    assert caught.value.code is Code.BINDING_RANGE


@pytest.mark.parametrize(("name", "workload"), [("wq", "llama_layer"), ("head", "llama_step")])
def test_other_dtypes_are_refused(name: str, workload: str) -> None:
    given = model([3])
    given.weights[name] = given.weights[name].astype(ml_dtypes.bfloat16)
    with pytest.raises(CompileError, match=f"{workload}: {name} is bf16") as caught:
        given.workload().compile()
    assert caught.value.code is Code.WORKLOAD_ARGUMENT
    assert (
        caught.value.fix == f"convert it: {name}.astype(np.float32), or {name}.float() of PyTorch"
    )
