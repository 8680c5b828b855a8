"""A unit in parts, which are compiled at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.kernels.emit_cpp import KERNEL_INCLUDE, UNIT_NAME, CppUnit, TileLines
from pto_wsp.kernels.emit_tile import PRODUCT_HEADER

# With fewer, reading the headers once more costs as much as is won.
_TILES_OF_A_PART = 4
# How long products take to compile, once in a part, as lines of other kernels.
_PRODUCT_LINES = 250


def split(unit: CppUnit, most: int) -> list[str]:
    """The texts of at most so many parts. The first has all that is not of tile kernels: bodies of
    users may define what they like, but once. Lines of other parts are empty, so that messages name
    the lines of the unit."""
    count = min(most, len(unit.tiles) // _TILES_OF_A_PART)
    if count < 2:
        return [unit.text]
    lines = unit.text.split("\n")
    shares = _share_out(unit.tiles, count)
    texts: list[str] = []
    for number, share in enumerate(shares):
        if number == 0:
            part = list(lines)
            for tile in unit.tiles:
                if tile not in share:
                    part[tile.begin : tile.end] = [""] * (tile.end - tile.begin)
        else:
            includes = {KERNEL_INCLUDE, *(line for tile in share for line in tile.includes)}
            head = min(tile.begin for tile in unit.tiles)
            part = [line if i < head and line in includes else "" for i, line in enumerate(lines)]
            for tile in share:
                part[tile.begin : tile.end] = lines[tile.begin : tile.end]
            part.insert(0, f'#line 1 "{UNIT_NAME}"')
        texts.append("\n".join(part))
    return texts


def _share_out(tiles: Sequence[TileLines], count: int) -> list[list[TileLines]]:
    """Parts that take about as long: the longest kernel first, each to where it is done first; but
    products together, as far as they fit."""
    shares: list[list[TileLines]] = [[] for _ in range(count)]
    room = (sum(map(_length, tiles)) + _PRODUCT_LINES) // count
    for tile in sorted(tiles, key=lambda each: (_multiplies(each), _length(each)), reverse=True):
        costs = [_cost([*share, tile]) for share in shares]
        # The last of equals: the first part has the bodies of users.
        order = sorted(range(count), key=lambda part: (costs[part], -part))
        together = [p for p in order if any(map(_multiplies, shares[p])) and costs[p] <= room]
        best = together[0] if together and _multiplies(tile) else order[0]
        shares[best].append(tile)
    return shares


def _cost(share: Sequence[TileLines]) -> int:
    return sum(map(_length, share)) + (_PRODUCT_LINES if any(map(_multiplies, share)) else 0)


def _multiplies(tile: TileLines) -> bool:
    return any(PRODUCT_HEADER in line for line in tile.includes)


def _length(tile: TileLines) -> int:
    return tile.end - tile.begin
