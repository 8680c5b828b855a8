"""Programs from plans: saved, loaded elsewhere, run with other extents; what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Plan,
    PlanError,
    Program,
    Ragged,
    ReadyPolicy,
    Tensor,
    kernel,
    workload,
)
from pto_wsp.backends import registry
from tests.runtime.scripts import run_script


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@kernel(cpp_src="y() = y() * 3 + x();")
def update(x: In[Tensor], y: InOut[Tensor]): ...


@kernel
def double(y: InOut[Tensor]):
    y *= 2


@workload
def native_only(n, lens, X, Y):
    for i in P(n):
        for j in P.seq(lens[i]):
            update[i, j](x=X[j], y=Y[i])


@workload
def with_python(n, lens, X, Y):
    for i in P(n):
        for j in P.seq(lens[i]):
            update[i, j](x=X[j], y=Y[i])
        double[i](y=Y[i])


def expected(lengths: list[int], *, doubled: bool) -> list[int]:
    result = []
    for length in lengths:
        y = 0
        for j in range(length):
            y = y * 3 + j
        result.append(y * 2 if doubled else y)
    return result


def compiled(work: Any, target: str = "cpu_sim") -> Program:
    rows = DenseDyn(3)
    tensors = Tensor(data=np.arange(16)), Tensor(data=np.zeros(8, np.int64))
    return work(rows, Ragged(rows, [3, 1, 2]), *tensors).compile(target=target)


def run(program: Program, lengths: list[int]) -> list[int]:
    y = np.zeros(len(lengths), np.int64)
    program.execute(n=len(lengths), lens=lengths, X=np.arange(16), Y=y)
    return y.tolist()


LENGTHS = ([3, 1, 2], [0, 5], [1, 0, 2, 4, 16])


def test_one_plan_serves_any_extents(target: str) -> None:
    program = compiled(native_only, target)
    plan = program.plan.to_bytes()
    for lengths in LENGTHS:
        assert run(program, lengths) == expected(lengths, doubled=False)
        assert program.plan.to_bytes() == plan


@pytest.mark.parametrize("form", ["plan", "bytes", "path", "text"])
def test_from_plan(target: str, form: str, tmp_path: Path) -> None:
    plan = compiled(native_only).plan
    path = tmp_path / "saved.ptow"
    plan.save(path)
    forms: dict[str, Any] = {
        "plan": plan,
        "bytes": plan.to_bytes(),
        "path": path,
        "text": str(path),
    }
    program = Program.from_plan(forms[form], target=target)
    assert program.plan.plan_id == plan.plan_id
    for lengths in LENGTHS:
        assert run(program, lengths) == expected(lengths, doubled=False)


def test_from_plan_with_python_kernels(target: str) -> None:
    data = compiled(with_python).plan.to_bytes()
    for body in (double, double.fn):
        program = Program.from_plan(data, kernels={"double": body}, target=target)
        assert run(program, [3, 1, 2]) == expected([3, 1, 2], doubled=True)
    with pytest.raises(CompileError) as raised:
        Program.from_plan(data, target=target)
    assert raised.value.message == "no Python function was given for kernel 'double'"
    assert raised.value.fix == "pass kernels={'double': double}"


def test_from_plan_binds_nothing_by_itself(target: str) -> None:
    program = Program.from_plan(compiled(native_only).plan.to_bytes(), target=target)
    assert not {"X", "Y", "lens"} & set(program.bindings)


def test_from_plan_in_another_process(tmp_path: Path) -> None:
    """C++ bodies travel in the plan; Python bodies are given by name. Source lines are kept."""
    compiled(native_only).plan.save(tmp_path / "native.ptow")
    compiled(with_python).plan.save(tmp_path / "python.ptow")
    script = f"""
        def twice(y):
            y *= 2

        for target in ("cpu_sim", "reference"):
            for name, kernels in (("native", None), ("python", {{"double": twice}})):
                program = Program.from_plan(name + ".ptow", kernels=kernels, target=target)
                for lengths in {LENGTHS}:
                    y = np.zeros(len(lengths), np.int64)
                    program.execute(n=len(lengths), lens=lengths, X=np.arange(16), Y=y)
                    print(y.tolist())
            try:
                program.execute(n=1, lens=[17])
            except ExecutionError as error:
                print(error.loc.file.endswith("test_program_plan.py"), error.loc.line)
    """
    lines = run_script(script, tmp_path).splitlines()
    results = [expected(lengths, doubled=d) for d in (False, True) for lengths in LENGTHS]
    source = Path(__file__).read_text("utf-8").splitlines()
    second_call = [k for k, line in enumerate(source, 1) if "update[i, j](x=" in line][1]
    wanted = [*map(str, results), f"True {second_call}"]
    assert lines == wanted * 2


def test_damaged_plans_are_refused(tmp_path: Path) -> None:
    data = compiled(native_only).plan.to_bytes()
    (tmp_path / "cut.ptow").write_bytes(data[:100])
    for damaged in (b"", data[:-1], bytes(reversed(data)), tmp_path / "cut.ptow"):
        with pytest.raises(PlanError):
            Program.from_plan(damaged)


def test_schedules_can_be_swapped(target: str) -> None:
    plain = compiled(native_only).plan
    rows = DenseDyn(3)
    tensors = Tensor(data=np.arange(16)), Tensor(data=np.zeros(8, np.int64))
    scheduled = native_only(rows, Ragged(rows, [3, 1, 2]), *tensors)
    scheduled = scheduled.task_graph(ready=ReadyPolicy.work_steal()).compile().plan
    assert plain.plan_id == scheduled.plan_id
    assert plain.schedule_id != scheduled.schedule_id
    swapped = plain.with_schedule_of(scheduled)
    assert swapped.schedule_id == scheduled.schedule_id
    program = Program.from_plan(swapped, target=target)
    assert run(program, [3, 1, 2]) == expected([3, 1, 2], doubled=False)


# --- LLaMA-7B attention at 16K: 4 x 32 x 512 x 512 = 33.5 M tasks --------------------------------

traces: list[str] = []


@kernel(cpp_src="out(0, 0) += q(0, 0) * k(0, 0);")
def attend(q: In[Tensor], k: In[Tensor], v: In[Tensor], out: InOut[Tensor]): ...


@kernel(cpp_src="y(0, 0) = x(0, 0);")
def normalise(x: In[Tensor], y: Out[Tensor]): ...


@workload
def attention(batch, heads, queries, keys, Q, K, V, A, Y):
    traces.append("attention")
    for b, h, i in P(batch, heads, queries):
        for j in P.seq(keys):
            attend[b, h, i, j](
                q=Q[b, h, i * 32 : (i + 1) * 32],
                k=K[b, h, j * 32 : (j + 1) * 32],
                v=V[b, h, j * 32 : (j + 1) * 32],
                out=A[b, h, i * 32 : (i + 1) * 32],
            )
        normalise[b, h, i](x=A[b, h, i * 32 : (i + 1) * 32], y=Y[b, h, i * 32 : (i + 1) * 32])


def attention_plan(queries: int, keys: int) -> Plan:
    # Shapes are bound at execute, so no memory is needed to compile.
    base = np.zeros(1, np.float32)
    data = np.lib.stride_tricks.as_strided(base, (4, 32, queries * 32, 128), (0, 0, 0, 0))
    tensors = {name: Tensor(data=data) for name in "QKVAY"}
    extents = (DenseDyn(4), DenseDyn(32), DenseDyn(queries), DenseDyn(keys))
    return attention(*extents, **tensors).compile().plan


def test_compiling_does_not_depend_on_extents() -> None:
    """Equal bytes but for the default extents, and the user's function runs once for each."""
    traces.clear()
    small, large = attention_plan(8, 8), attention_plan(512, 512)
    assert traces == ["attention", "attention"]
    a, b = small.to_bytes(), large.to_bytes()
    assert len(a) == len(b)
    different = [k for k in range(len(a)) if a[k] != b[k]]
    # The defaults (8 and 512, in one or two constants), and the identity over them.
    assert len(different) <= 4 + 16 + 16
    assert small.disassemble().count("\n") == large.disassemble().count("\n")


def test_compiling_again_does_not_trace_again(target: str) -> None:
    traces.clear()
    base = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (4, 2, 64, 8), (0, 0, 0, 0))
    tensors = {name: Tensor(data=base) for name in "QKVAY"}
    work = attention(DenseDyn(4), DenseDyn(2), DenseDyn(2), DenseDyn(2), **tensors)
    first = work.compile(target=target)
    second = work.task_graph(ready=ReadyPolicy.fifo()).compile(target=target)
    assert traces == ["attention"]
    assert first.plan.plan_id == second.plan.plan_id


def test_the_plan_of_llama_attention_is_small() -> None:
    plan = attention_plan(512, 512)
    assert plan.task_bytes <= 4096
    assert plan.task_bytes == attention_plan(1, 1).task_bytes


def test_counting_many_tasks_needs_no_memory_of_that_size() -> None:
    plan = attention_plan(8, 8)
    program = Program.from_plan(plan)
    base = np.zeros(1, np.float32)
    data = np.lib.stride_tricks.as_strided(base, (4, 32, 64 * 32, 128), (0, 0, 0, 0))
    names = dict.fromkeys("QKVAY", data)
    count = program.num_tasks(batch=4, heads=32, queries=64, keys=64, **names)
    assert count == 4 * 32 * 64 * 65
