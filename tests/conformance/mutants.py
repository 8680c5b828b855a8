"""Run by test_mutants.py, in a process of its own: the tests that judge directives, once for each
directive that is switched off. Prints, as JSON, which tests failed.

Without its directive a test may depend on how the machine's threads are scheduled: a surprise is
a surprise only when it happens each time (ATTEMPTS).

    python -m tests.conformance.mutants CORE DIRECTIVE...
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

ATTEMPTS = 3


class Outcomes:
    """Which of the marked tests ran, and which failed."""

    def __init__(self) -> None:
        self.marks: dict[str, list[str]] = {}
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in list(items):
            names = [str(mark.args[0]) for mark in item.iter_markers("directive")]
            if names:
                self.marks[item.nodeid] = names
            else:
                items.remove(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def load_core(path: Path) -> Any:
    """Takes the place of the core that is installed, before anybody imports that."""
    spec = importlib.util.spec_from_file_location("pto_wsp._core", path)
    assert spec is not None
    assert spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    sys.modules["pto_wsp._core"] = core
    spec.loader.exec_module(core)
    return core


def run_tests(tests: list[str]) -> Outcomes:
    outcomes = Outcomes()
    with redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *tests], [outcomes])
    return outcomes


def judge(directive: str, tests: list[str]) -> dict[str, Any]:
    """Runs the tests, and those again that did other than expected with the directive off."""
    first = run_tests(tests)
    own = {test for test, names in first.marks.items() if directive in names}
    surprises = first.failed ^ own
    for _ in range(ATTEMPTS - 1):
        # With every directive on there is nothing to excuse.
        if directive and surprises:
            surprises &= run_tests(sorted(surprises)).failed ^ own
    return {"failed": sorted(own ^ surprises), "marks": first.marks}


def main(core_path: str, *directives: str) -> None:
    core = load_core(Path(core_path))
    tests = sorted(Path(__file__).parent.glob("test_*.py"))
    judging = [str(test) for test in tests if "mark.directive(" in test.read_text("utf-8")]
    results: dict[str, Any] = {}
    for name in ("", *directives):
        assert core.disable_directive(name), name
        results[name] = judge(name, judging)
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
