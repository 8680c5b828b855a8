"""Which tasks conflict: an access and those before it that touch the same bytes, of which one
writes. Pairs with a third access in between that orders them anyway are left out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pto_wsp.backends.reference.verify.history import Hazard, History
from pto_wsp.backends.reference.verify.record import Record
from pto_wsp.backends.reference.verify.spaces import Key, Spaces
from pto_wsp.plan import AccessMode


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a node has to come after another, and the regions by which they meet."""

    hazard: Hazard
    first: int  # region of the earlier node
    second: int  # region of the later one


class Oracle:
    """Nodes are given in program order, each once: `conflicts`, then `add`."""

    def __init__(self, record: Record) -> None:
        self.spaces = Spaces(record.bound)
        self._record = record
        self._histories: dict[Key, dict[int, History]] = {}
        for node in record.nodes:
            for region, copy in zip(node.regions, node.copies, strict=True):
                if region.mode != AccessMode.IN:
                    key, _ = self.spaces.pieces(region, copy)
                    self._histories.setdefault(key, defaultdict(History))
        for node in record.nodes:
            for region, copy in zip(node.regions, node.copies, strict=True):
                key, pieces = self.spaces.pieces(region, copy)
                # What nobody writes is no reason for anything.
                for piece in pieces if key in self._histories else ():
                    self.spaces.space(key).add(piece)

    def conflicts(self, n: int) -> dict[int, Conflict]:
        """By earlier node, in no particular order."""
        found: dict[int, Conflict] = {}
        for k, mode, histories, cells in self._touched(n):
            for cell in cells:
                history = histories.get(cell)
                for (other, part), hazard in () if history is None else history.conflicts(mode):
                    known = found.get(other)
                    if known is None or known.hazard is Hazard.APART:
                        found[other] = Conflict(hazard, part, k)
        return found

    def add(self, n: int) -> None:
        for k, mode, histories, cells in self._touched(n):
            for cell in cells:
                histories[cell].add((n, k), mode)

    def _touched(self, n: int) -> list[tuple[int, AccessMode, dict[int, History], list[int]]]:
        node = self._record.nodes[n]
        out: list[tuple[int, AccessMode, Any, list[int]]] = []
        for k, (region, copy) in enumerate(zip(node.regions, node.copies, strict=True)):
            key, pieces = self.spaces.pieces(region, copy)
            histories = self._histories.get(key)
            if histories is None:
                continue
            space = self.spaces.space(key)
            cells = [cell for piece in pieces for cell in space.cells(piece)]
            out.append((k, region.mode, histories, cells))
        # A task reads before it writes.
        return sorted(out, key=lambda touched: touched[1] != AccessMode.IN)
