"""What a run measures: rows with a rival, a bar and a verdict, written one by one."""

from __future__ import annotations

import json
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked of a row: its value, or its ratio to the rival, at most or at least `limit`."""

    limit: float
    of_ratio: bool = False
    at_least: bool = False
    below: bool = False  # equal does not pass

    def holds(self, measured: float, ratio: float | None) -> bool | None:
        value = ratio if self.of_ratio else measured
        if value is None:
            return None
        if self.at_least:
            return value >= self.limit
        return value < self.limit if self.below else value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<" if self.below else "<="
        return f"{sign} {self.limit:g}{' x' if self.of_ratio else ''}"


@dataclass(slots=True)
class Row:
    """`ratio` is measured / rival. `more` are numbers that have no column."""

    section: str
    name: str
    measured: float | None = None
    unit: str = ""
    rival: str = ""
    rival_value: float | None = None
    ratio: float | None = None
    bar: str = ""
    verdict: str = ""
    more: Json = field(default_factory=dict)


class Report:
    """Rows so far. After each one the file is complete, so a run that is cut off leaves what it
    has."""

    def __init__(self, path: Path | None, machine: Json, *, to: TextIO, judged: bool) -> None:
        """`judged`: times mean something, so that bars do."""
        self._path = path
        self._to = to
        self._judged = judged
        self.content: Json = {"machine": machine, "seconds": {}, "notes": [], "rows": []}
        self._say(f"{'what':<46} {'measured':>11} {'':<9}{'rival':>11} {'':<28}{'ratio':>7}  bar")
        self.write()

    def row(
        self,
        section: str,
        name: str,
        measured: float,
        unit: str,
        *,
        rival: tuple[str, float] | None = None,
        bar: Bar | None = None,
        wrong: str = "",
        **more: object,
    ) -> Row:
        """A measurement; `wrong` says what is wrong with its result, which no speed makes good."""
        made = Row(section, name, measured, unit, more=dict(more))
        if rival is not None:
            made.rival, made.rival_value = rival
            made.ratio = measured / rival[1] if rival[1] else None
        if bar is not None and self._judged:
            made.bar = str(bar)
            held = bar.holds(measured, made.ratio)
            made.verdict = "not comparable" if held is None else "ok" if held else "MISSED"
        if wrong:
            made.verdict = f"WRONG: {wrong}"
        return self._add(made)

    def checked(self, section: str, name: str, wrong: str, **more: object) -> Row:
        """Something that is right or wrong."""
        return self._add(
            Row(section, name, verdict=f"WRONG: {wrong}" if wrong else "ok", more=dict(more))
        )

    def note(self, text: str) -> None:
        """Something that is no row, and yet has to be known to read the rows."""
        self.content["notes"].append(text)
        self.write()
        self._say(f"note: {text}")

    @contextmanager
    def case(self, section: str, name: str) -> Generator[None]:
        """What fails in here is a row, and the run goes on."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            row = Row(section, name, verdict=f"FAILED: {text.splitlines()[0]}")
            row.more["error"] = traceback.format_exc()[-4000:]
            self._add(row)

    def _add(self, row: Row) -> Row:
        self.content["rows"].append(asdict(row))
        self.write()
        self._say(_line(row))
        return row

    def write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self.content, indent=1) + "\n", "utf-8")

    def _say(self, text: str) -> None:
        print(text, file=self._to, flush=True)

    @property
    def failed(self) -> int:
        return sum(row["verdict"].startswith(("FAILED", "WRONG")) for row in self.content["rows"])


def _line(row: Row) -> str:
    measured = "" if row.measured is None else f"{row.measured:.4g}"
    rival = "" if row.rival_value is None else f"{row.rival_value:.4g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
    parts = f"{row.section + ': ' + row.name:<46} {measured:>11} {row.unit:<9}{rival:>11} "
    return f"{parts}{row.rival:<28}{ratio:>7}  {row.bar:<10} {row.verdict}".rstrip()
