"""Tests of the tests: a directive that is not enforced makes exactly its own tests fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pto_wsp import _core

ROOT = Path(__file__).resolve().parents[2]
TABLE = cast("list[dict[str, Any]]", _core.reflect()["directives"])
ACTING = [entry["name"] for entry in TABLE if entry["acts"]]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    found = sorted((ROOT / "build" / "mutants").glob("_core*.so"))
    if not found:
        pytest.skip("no build with switches: `make test-py` makes one")
    command = [sys.executable, "-m", "tests.conformance.mutants", str(found[0])]
    halves = [
        subprocess.Popen([*command, *half], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for half in (ACTING[::2], ACTING[1::2])
    ]
    outputs = [half.communicate()[0] for half in halves]
    assert [half.returncode for half in halves] == [0, 0]
    first, second = (json.loads(output) for output in outputs)
    return {**first, **second}


def test_nothing_fails_where_all_are_enforced(results: dict[str, Any]) -> None:
    assert results[""]["failed"] == []


def test_each_directive_has_its_tests(results: dict[str, Any]) -> None:
    marked = {name for names in results[""]["marks"].values() for name in names}
    assert marked == set(ACTING)


@pytest.mark.parametrize("name", ACTING)
def test_a_directive_that_is_not_enforced(results: dict[str, Any], name: str) -> None:
    own = sorted(test for test, names in results[name]["marks"].items() if name in names)
    assert results[name]["failed"] == own
