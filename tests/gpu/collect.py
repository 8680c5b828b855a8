"""Collects what a GPU is to run: python -m tests.gpu.collect --out build/gpu-suite.pickle

Runs the conformance tests, and keeps every program that they compile and execute, with what it was
bound to at first; draws random nests of the property tests. Needs pytest and hypothesis.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from pto_wsp import Workload, driver, ir
from pto_wsp.runtime.program import Program
from pto_wsp.sharing import ArrayHolder, DeviceArray
from tests.gpu.suite import Entry, plain, save
from tests.property.nests import Case, cases

_LARGEST = 1 << 22  # bytes of the arrays of a program


class _Recorder:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.entries: dict[ir.Module, Entry] = {}
        self._modules: dict[int, ir.Module] = {}
        self._compile = driver.compile_workload
        self._runs = {name: getattr(Program, name) for name in ("execute", "execute_async")}
        self._test = ""

    def install(self) -> None:
        def compile_workload(work: Workload, target: str = "cpu_sim", **options: object) -> Program:
            program = self._compile(work, target, **options)
            self._modules[id(program)] = work.traced().module
            return program

        def recorded(run: Any) -> Any:
            def execute(program: Program, **bindings: object) -> Program:
                self._record(program, bindings)
                return run(program, **bindings)

            return execute

        driver.compile_workload = compile_workload
        for name, run in self._runs.items():
            setattr(Program, name, recorded(run))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._test = f"{item.path.stem}::{item.name.split('[')[0]}"

    def _record(self, program: Program, bindings: dict[str, object]) -> None:
        module = self._modules.pop(id(program), None)
        if module is None:
            return
        values = {**program._binder.current}
        for name, value in bindings.items():
            if program._binder.has(name):
                values[name] = value.data if isinstance(value, ArrayHolder) else value
        arrays = {n: v for n, v in values.items() if isinstance(v, np.ndarray)}
        if any(isinstance(v, DeviceArray) for v in values.values()):
            return
        if sum(a.nbytes for a in arrays.values()) > _LARGEST:
            return
        nest = plain(module)
        known = self.entries.get(nest)
        if known is None:
            copies = {id(a): a.copy(order="K") for a in arrays.values()}
            copied = {n: copies[id(v)] if n in arrays else v for n, v in values.items()}
            known = Entry(self._test, "conformance", nest, copied, shared=_shared(arrays))
            self.entries[nest] = known
        if module.schedule not in known.schedules:
            known.schedules.append(module.schedule)


def _shared(arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Names of arrays that lie in another one's memory without being it."""
    found: list[str] = []
    for name, array in arrays.items():
        for other in arrays.values():
            if other is not array and np.shares_memory(array, other):
                found.append(name)
                break
    return tuple(found)


def conformance() -> list[Entry]:
    recorder = _Recorder()
    recorder.install()
    # Mutants are the same programs once more; hypothesis was imported before pytest could see it.
    skipped = ["--ignore=tests/conformance/test_mutants.py", "-p", "no:cacheprovider"]
    known = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main(["tests/conformance", "-q", *skipped, *known], plugins=[recorder])
    count: dict[str, int] = {}
    for entry in recorder.entries.values():
        count[entry.name] = count.get(entry.name, 0) + 1
        if count[entry.name] > 1:
            entry.name += f" ({count[entry.name]})"
    return list(recorder.entries.values())


def nests(count: int, start: int = 0) -> list[Entry]:
    """Random nests without slots and `P.loop_while`; their tensors do not overlap."""
    found: list[Entry] = []

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def draw(case: Case) -> None:
        text = ir.to_text(case.module, locs=False)
        if "slot" in text or "while" in text:
            return
        _, values = case.bind()
        kept = {n: v.copy(order="K") if isinstance(v, np.ndarray) else v for n, v in values.items()}
        entry = Entry(f"nest {len(found)}", "nest", replace(case.module, name="nest"), kept)
        found.append(entry)

    draw()
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.collect", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/gpu-suite.pickle"))
    parser.add_argument("--nests", type=int, default=200, help="random nests (200)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TRITON_INTERPRET", "1")
    entries = conformance() + nests(options.nests)
    save(options.out, entries)
    print(f"{len(entries)} programs in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
