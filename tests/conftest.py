"""Golden files and the settings of property tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent

# One core may be busy with a build, so no time limits: they would fail for no reason.
settings.register_profile(
    "ci",
    max_examples=20,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@dataclass
class Golden:
    """The golden files of one test: tests/golden/<test file>/<name>.txt."""

    folder: Path
    test: str
    update: bool
    used: set[str] = field(default_factory=set)

    def check(self, name: str | None, text: str) -> None:
        """Compares text with a golden file, called after the test unless `name` is given."""
        name = self.test if name is None else name
        assert name not in self.used, f"golden {name} is checked twice by one test"
        self.used.add(name)
        path = self.folder / f"{name}.txt"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        shown = path.relative_to(TESTS.parent)
        assert path.exists(), f"{shown} is missing; run pytest --update-golden and look at it"
        assert text == path.read_text(encoding="utf-8"), f"{shown} differs from the output"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    file = request.path.relative_to(TESTS).with_suffix("")
    name = request.node.name.removeprefix("test_")
    # A parameter becomes a part of the file's name: test_print[ragged] -> print-ragged.
    name = name.replace("[", "-").replace("]", "")
    update = request.config.getoption("--update-golden")
    return Golden(TESTS / "golden" / file, name, bool(update))
