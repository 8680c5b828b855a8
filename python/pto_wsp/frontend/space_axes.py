"""The axes of a space: what a user says of them, and what a generator sees."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum
from typing import Any, SupportsIndex, TypeAlias, cast

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axis_params import ArrayParam, AxisParam, LoopAxis
from pto_wsp.frontend.reductions import reduce_max, reduce_sum, search
from pto_wsp.frontend.refusal import COMPUTING, EQUALITY, refuse
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    SymInt,
    as_int,
    as_symint,
    kind_of,
    maximum,
)
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.tile_vars import tile_count
from pto_wsp.frontend.trace import current


class Late(Enum):
    """What an axis leaves to the generator."""

    DYNAMIC = "DYNAMIC"  # where it ends
    AUTO = "AUTO"  # the size of its tiles

    def __repr__(self) -> str:
        return self.value


class Padding(Enum):
    PAD_LAST = "PAD_LAST"  # the last tile is as large as the others

    def __repr__(self) -> str:
        return self.value


DYNAMIC, AUTO, PAD_LAST = Late.DYNAMIC, Late.AUTO, Padding.PAD_LAST
TileSize: TypeAlias = SupportsIndex | Late | tuple[SupportsIndex | Late, Padding]


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """An axis of a space: from `start` up to `end`, in tiles of `tile` elements if it has any."""

    start: int
    end: int | str | Late
    tile: int | Late | None = None
    padded: bool = False


def axis(
    start: SupportsIndex, end: SupportsIndex | str | Late, *, tile: TileSize | None = None
) -> AxisSpec:
    """`axis(0, 8)`, `axis(0, "batch_size")` for an end that is bound at launch, `axis(0, DYNAMIC)`
    for one that the generator knows. `tile=256`, `tile=(256, PAD_LAST)`, or `tile=AUTO`: then the
    generator fits the size to the work."""
    first, last = integer(start), DYNAMIC if end is DYNAMIC else _end(end)
    size, padded = _tile(tile)
    if first is not None and last is not None and size != 0 and not _is_before(last, first):
        return AxisSpec(first, last, size, padded)
    raise _error(
        f"axis({start!r}, {end!r}, tile={tile!r})",
        "an axis begins at 0 or above, ends there or behind at a number, at the name of an input"
        " or at DYNAMIC, and has tiles of at least 1 element, AUTO or none",
        'write axis(0, 8), axis(0, "batch_size") or axis(0, DYNAMIC, tile=AUTO)',
    )


def integer(value: object) -> int | None:
    """A number of at least 0, from anything that Python takes for one but a bool."""
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None
    return number if number >= 0 else None


def _end(end: object) -> int | str | None:
    return end if isinstance(end, str) and end.isidentifier() else integer(end)


def _is_before(end: object, start: int) -> bool:
    return isinstance(end, int) and end < start


def _tile(tile: object) -> tuple[int | Late | None, bool]:
    """The size of tiles, 0 if it makes no sense, and whether the last one is padded."""
    if tile is None:
        return None, False
    given = cast("tuple[object, ...]", tile) if isinstance(tile, tuple) else (tile, None)
    if len(given) != 2 or (isinstance(tile, tuple) and given[1] is not PAD_LAST):
        return 0, False
    size, padding = given
    return AUTO if size is AUTO else integer(size) or 0, padding is PAD_LAST


@refuse(
    COMPUTING,
    EQUALITY,
    code=Code.PARAMETER_AS_VALUE,
    message="an axis of a space is not a number or a sequence ({op})",
    why="its extent is bound at launch, and its body is traced once for all iterations",
    fix="loop over it with P: `for i in P(s.i)`",
)
class SpaceAxis(LoopAxis):
    """An axis inside a generator. `P(s.head)` loops over it; `s.kv(end)` is the axis up to an end
    that the generator knows, and `s.kv.fit(...)` chooses the size of AUTO tiles."""

    def __init__(self, name: str, spec: AxisSpec, end: SymInt | None, size: SymInt | None) -> None:
        self.name = name
        self.padded = spec.padded
        self.key = self.spec = spec
        self._end = end
        self._size = size

    def __call__(self, end: IntLike) -> SpaceAxis:
        if self.spec.end is not DYNAMIC:
            raise _error(
                f"axis {self.name} is given an end",
                f"it ends at {self.spec.end}",
                "loop over it as it is, or declare it with axis(0, DYNAMIC)",
            )
        return SpaceAxis(self.name, self.spec, as_symint(end), self._size)

    @property
    def first(self) -> int:
        return self.spec.start

    @property
    def end(self) -> SymInt:
        if self._end is not None:
            return self._end
        raise _error(
            f"axis {self.name} has no end",
            "it is DYNAMIC: the generator says where it ends",
            f"write s.{self.name}(end)",
        )

    @property
    def tile(self) -> SymInt | None:
        """Elements of a tile; None if there are no tiles."""
        if self.spec.tile is AUTO and self._size is None:
            raise _error(
                f"axis {self.name} has no size of tiles",
                "it is AUTO: the generator fits it to the work",
                f"call s.{self.name}.fit(blocks, lengths, count) before the loops",
            )
        return self._size

    def fit(
        self,
        blocks: IntLike,
        lengths: ArrayParam | AxisParam,
        count: IntLike,
        least: IntLike = 256,
    ) -> SymInt:
        """Chooses AUTO tiles: the smallest size, of at least `least` elements, that cuts the first
        `count` rows into at most `blocks` tiles in all. A row goes from the start of the axis to
        its element of `lengths`. One that has elements is a tile at least, so with fewer blocks
        than such rows each of them is one tile. The size is searched for once a run."""
        self._check_fit(lengths, least)
        smallest = maximum(least, 1)

        def row(i: SymInt) -> SymInt:
            return maximum(as_symint(lengths[i]) - self.first, 0)

        def few(size: SymInt) -> BoolLike:
            return reduce_sum(count, lambda i: tile_count(row(i), size)) <= as_symint(blocks)

        self._size = search(smallest, maximum(reduce_max(count, row), smallest), few)
        return self._size

    def _check_fit(self, lengths: object, least: object) -> None:
        what = f"{self.name}.fit(...)"
        if self.spec.tile is not AUTO:
            raise _error(
                f"axis {self.name} has tiles of {self.spec.tile}",
                "only AUTO tiles are fitted",
                "declare it with tile=AUTO",
            )
        if current(what).loops:
            raise _error(
                f"{what} inside a loop",
                "there is one size of tiles in a run",
                "call it before the loops",
            )
        if not isinstance(lengths, ArrayParam | AxisParam):
            raise _lengths_error(what, lengths)
        number = as_int(least)
        if isinstance(least, bool) or (number is not None and number < 1):
            raise _error(f"{what} with least={least!r}", "a tile has an element", "pass 1 or more")

    def __repr__(self) -> str:
        return f"<axis {self.name} of a space>"


def _lengths_error(what: str, lengths: Any) -> CompileError:
    if not isinstance(lengths, Tensor):
        return _error(
            f"{what} of lengths that are {kind_of(lengths)}",
            "the size is searched for with the lengths of all rows",
            "pass an input of the generator that is an array of integers",
        )
    if lengths.dtype.numpy.kind not in "iu":
        return _error(
            f"{what} of lengths that are {lengths.dtype.text}",
            "lengths are integers",
            "pass a list of integers, or an array of them: lengths.astype(np.int64)",
        )
    return _error(
        f"{what} of lengths that are a tensor",
        "the size is known before the first task, when tensors are not yet written, and control "
        "reads single elements of them",
        "pass the lengths as a list of integers, or as an array of them with one dimension and "
        "without Tensor(...)",
    )


def _error(what: str, why: str, fix: str) -> CompileError:
    return CompileError(Code.SPACE, what, loc=srcloc.here(), why=why, fix=fix)
