"""The bars of bars.toml, and how a measurement is held against them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

FILE = Path(__file__).with_name("bars.toml")


class Verdict(Enum):
    """What became of a bar. `fails` ones end the check with an error."""

    AIM = "aim reached"
    PASS = "ok"
    BELOW_AIM = "below the aim"  # where nothing is required
    MISSED = "MISSED"
    MISSING = "NOT MEASURED"
    SKIPPED = "not measured"

    @property
    def fails(self) -> bool:
        return self in (Verdict.MISSED, Verdict.MISSING)


@dataclass(frozen=True, slots=True)
class Bar:
    """One entry of bars.toml."""

    name: str
    key: str
    direction: str  # "at least", "at most", "equal"
    required: float | None = None
    aim: float | None = None
    count: int = 1
    optional: bool = False

    def __post_init__(self) -> None:
        if self.direction not in ("at least", "at most", "equal"):
            raise ValueError(f"bar {self.name!r}: direction {self.direction!r}")
        if self.required is None and self.aim is None:
            raise ValueError(f"bar {self.name!r} has neither `required` nor `aim`")

    def reached(self, value: float, wanted: float) -> bool:
        match self.direction:
            case "at least":
                return value >= wanted
            case "at most":
                return value <= wanted
            case _:
                return value == wanted

    def judge(self, value: float) -> Verdict:
        if self.required is not None and not self.reached(value, self.required):
            return Verdict.MISSED
        if self.aim is not None and self.reached(value, self.aim):
            return Verdict.AIM
        return Verdict.BELOW_AIM if self.required is None else Verdict.PASS


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the check. `item` is what the `*` of the key stands for."""

    bar: Bar
    item: str
    value: float | None
    verdict: Verdict


def load(path: Path = FILE) -> list[Bar]:
    with path.open("rb") as file:
        return [Bar(**entry) for entry in tomllib.load(file)["bar"]]


def check(bars: list[Bar], measured: Mapping[str, Any]) -> list[Outcome]:
    """One outcome for each value that a bar speaks of, and one where values are missing."""
    outcomes: list[Outcome] = []
    for bar in bars:
        found = list(_find(measured, bar.key.split("."), ()))
        outcomes += [Outcome(bar, item, value, bar.judge(value)) for item, value in found]
        if len(found) < bar.count:
            # Some of several is a run that went wrong, even where none at all may be.
            allowed = not found and (bar.optional or bar.required is None)
            outcomes.append(Outcome(bar, "", None, Verdict.SKIPPED if allowed else Verdict.MISSING))
    return outcomes


def _find(node: object, path: list[str], stars: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if not path:
        # A truth value or a text at the end of a path is a mistake in bars.toml.
        if isinstance(node, int | float) and not isinstance(node, bool):
            yield " ".join(stars), node
        return
    if not isinstance(node, dict):
        return
    children = cast("dict[str, object]", node)
    head, rest = path[0], path[1:]
    if head == "*":
        for name, child in children.items():
            yield from _find(child, rest, (*stars, name))
    elif head in children:
        yield from _find(children[head], rest, stars)
