"""`pto-wsp dump` and `bench-kernel`, and what notebooks show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pto_wsp import DenseDyn, InOut, P, Program, Tensor, kernel, workload
from pto_wsp.cli import bench_kernel
from pto_wsp.cli.main import cli

SOURCE = """
import numpy as np
from pto_wsp import DenseDyn, InOut, P, Tensor, kernel, workload

@kernel(cpp_src="x[0] += 1.0;")
def bump(x: InOut[Tensor]): ...

@workload
def grow(rows, X):
    for i in P(rows):
        with P.when(i + 1 - 1 > 2):
            bump[i](X[i])

small = grow(DenseDyn(4), Tensor(data=np.zeros(4)))
other = grow(DenseDyn(8), Tensor(data=np.zeros(8)))
"""


KERNELS = """
from pto_wsp import DType, In, InOut, Out, Scalar, Tensor, Tile, kernel, kernels

soft = kernels.softmax(4, 16)

@kernel(cpp_src="for (int i = 0; i < x.shape(0); ++i) y[i] = x[i] * s;")
def scale(x: In[Tensor], y: Out[Tensor], s: Scalar[DType.F32]): ...
"""


def test_bench_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kernel, "RUN_SECONDS", 1e-4)
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)

    def bench(*options: str) -> Result:
        return CliRunner().invoke(cli, ["bench-kernel", str(path), *options])

    found = json.loads(bench("--name", "soft", "--json").output)
    assert found["kernel"] == "softmax"
    assert found["argument_bytes"] == 2 * 4 * 16 * 4
    assert 0 < found["best_ns"] <= found["ns"]
    shapes = ("--shape", "x=32", "--shape", "y=32", "--dtype", "y=f64", "--set", "s=2.5")
    assert json.loads(bench("--name", "scale", *shapes, "--json").output)["argument_bytes"] == 384
    assert "ns a call" in bench("--name", "scale", *shapes).output
    assert "has several kernels: --name soft or scale" in bench().output
    assert "keeps no kernel 'hard'" in bench("--name", "hard").output
    assert "x has no shape; pass --shape x=64x128" in bench("--name", "scale").output
    assert (
        "'x:3' is not of the form name=value" in bench("--name", "scale", "--shape", "x:3").output
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "work.py"
    path.write_text(SOURCE)
    return str(path)


def test_dump_shows_each_stage(file: str) -> None:
    traced = CliRunner().invoke(cli, ["dump", file])
    assert traced.exit_code == 0
    assert "# small\nmodule grow" in traced.output
    assert "# other" in traced.output
    assert "when i > 2 {" in traced.output
    lowered = CliRunner().invoke(cli, ["dump", file, "--after", "lower", "--name", "small"])
    assert "if i0 > 2" in lowered.output
    assert "# other" not in lowered.output
    simplified = CliRunner().invoke(cli, ["dump", file, "--after", "simplify", "--locs"])
    assert '@ "' in simplified.output


def test_dump_without_a_workload(file: str) -> None:
    result = CliRunner().invoke(cli, ["dump", file, "--name", "nothing"])
    assert result.exit_code == 1
    assert "keeps no workload 'nothing' in its variables" in result.output


@kernel
def bump(x: InOut[Tensor]):
    x += 1


@workload
def grow(rows, X):
    for i in P(rows):
        bump[i](X[i])


def test_notebooks_show_workloads_and_programs() -> None:
    work = grow(DenseDyn(4), Tensor(data=np.zeros(4)))
    assert "parallel i in rows" in work._repr_html_()
    with work.compile(target="reference") as program:
        html = program._repr_html_()
    assert "<td>X</td><td>float64[4]</td>" in html
    assert "task bump[i0]" in html


@pytest.mark.parametrize("target", ["reference", "cpu_sim"])
def test_instances_have_their_own_runs(target: str) -> None:
    first, second = np.zeros(4), np.zeros(4)
    with grow(DenseDyn(4), Tensor(data=first)).compile(target=target) as program:
        program.execute(rows=3)
        with program.instance() as other:
            assert isinstance(other, Program)
            other.execute(X=second)  # `rows` is what it was bound to last
            program.execute_async()
            other.execute_async()
            program.synchronize()
            other.synchronize()
            assert other.bindings["X"] is second
            assert program.bindings["X"] is first
    assert first.tolist() == [2, 2, 2, 0]
    assert second.tolist() == [2, 2, 2, 0]
