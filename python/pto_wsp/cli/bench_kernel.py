"""`pto-wsp bench-kernel`: how long one call of a kernel takes, on one worker."""

from __future__ import annotations

import json
import runpy
import statistics
import time
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from pto_wsp import ir
from pto_wsp.driver import compile_workload
from pto_wsp.dtypes import DType
from pto_wsp.frontend import DenseDyn, Kernel, P, Tensor, Workload, workload
from pto_wsp.frontend.annotations import ConstexprParam, ScalarParam, TensorParam

RUNS = 15
RUN_SECONDS = 0.02


@click.command("bench-kernel")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="The variable of the file that holds the kernel.")
@click.option("--shape", "shapes", multiple=True, help="Of a Tensor parameter: k=2048x128.")
@click.option("--dtype", "dtypes", multiple=True, help="Of a Tensor parameter: k=f16 (f32).")
@click.option("--set", "values", multiple=True, help="A scalar or Constexpr: scale=0.5 (1).")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def bench_kernel(
    file: Path,
    name: str | None,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    values: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a Python file and time one of its kernels on whole tiles of random numbers.

    Calls follow each other on one worker and on the same arguments, which therefore are in the
    caches if they fit; the time includes what the runtime needs for a task.
    """
    kernel = _find(file, name)
    given = _Given(kernel.name, _pairs(shapes), _pairs(dtypes), _pairs(values))
    arguments = {param.name: given.argument(param) for param in kernel.params}
    begin = time.perf_counter()
    work = _repeated(kernel, arguments)
    with compile_workload(work, num_threads=1) as program:
        compiled = time.perf_counter() - begin
        calls, samples = _time(program)
    arrays = [each for each in arguments.values() if isinstance(each, Tensor)]
    size = sum(cast("Any", each.data).nbytes for each in arrays)
    ns = statistics.median(samples)
    result = {
        "kernel": kernel.name,
        "ns": ns,
        "best_ns": min(samples),
        "calls": calls,
        "argument_bytes": size,
        "gb_per_s": size / ns,
        "compile_s": compiled,
    }
    if as_json:
        click.echo(json.dumps(result))
        return
    click.echo(f"{kernel.name}: {ns:,.0f} ns a call (best {min(samples):,.0f}), {calls} a run")
    click.echo(f"{size:,} bytes of arguments, {size / ns:.2f} GB/s; ready after {compiled:.2f} s")


def _find(file: Path, name: str | None) -> Kernel:
    kept = runpy.run_path(str(file))
    found = {n: k for n, k in kept.items() if isinstance(k, Kernel) and name in (None, n)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise click.ClickException(f"{file} has several kernels: --name {' or '.join(found)}")
    wanted = "no kernel" if name is None else f"no kernel {name!r}"
    raise click.ClickException(f"{file} keeps {wanted} in its variables")


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    out: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not (key and equals and value):
            raise click.ClickException(f"{option!r} is not of the form name=value")
        out[key] = value
    return out


class _Given:
    """What the command line says about parameters."""

    def __init__(
        self, kernel: str, shapes: dict[str, str], dtypes: dict[str, str], values: dict[str, str]
    ) -> None:
        self.kernel, self.shapes, self.dtypes, self.values = kernel, shapes, dtypes, values

    def argument(self, param: Any) -> Any:
        match param:
            case TensorParam():
                return self._tensor(param)
            case ScalarParam():
                number = float(self.values.get(param.name, cast(float, param.default or 1)))
                is_float = ir.scalar_type(param.dtype) is ir.ExprType.F64
                return number if is_float else int(number)
            case ConstexprParam():
                text = self.values.get(param.name)
                if text is None and param.default is not None:
                    return param.default
                return int(text or 1)
            case _:
                raise click.ClickException(f"{param} cannot be timed alone")

    def _tensor(self, param: TensorParam) -> Tensor:
        if param.tile is not None:
            return _random(param.name, param.tile.shape, param.tile.dtype)
        text = self.shapes.get(param.name)
        if text is None or param.view is not ir.ViewKind.STRIDED:
            raise click.ClickException(
                f"kernel {self.kernel}: {param.name} has no shape; pass --shape {param.name}=64x128"
            )
        shape = tuple(int(part) for part in text.split("x"))
        return _random(param.name, shape, DType.parse(self.dtypes.get(param.name, "f32")))


def _random(name: str, shape: tuple[int, ...], dtype: DType) -> Tensor:
    numbers = np.random.default_rng(0).standard_normal(shape)
    is_float = ir.scalar_type(dtype) is ir.ExprType.F64
    data = numbers if is_float else np.abs(numbers * 10)
    return Tensor(data=data.astype(dtype.numpy), name=name)


def _repeated(kernel: Kernel, arguments: dict[str, Any]) -> Workload:
    @workload
    def repeated(calls: Any) -> None:
        for _ in P(calls):
            kernel(**arguments)

    return repeated(DenseDyn(1))


def _time(program: Any) -> tuple[int, list[float]]:
    """Calls in a run, and nanoseconds a call of each run."""
    calls = 1
    while True:
        begin = time.perf_counter_ns()
        program.execute(calls=calls)
        took = time.perf_counter_ns() - begin
        if took > RUN_SECONDS * 1e9 or calls >= 1 << 24:
            break
        calls *= 2
    samples: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter_ns()
        program.execute(calls=calls)
        samples.append((time.perf_counter_ns() - begin) / calls)
    return calls, samples
