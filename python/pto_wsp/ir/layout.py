"""Where a tensor lies: in which memory, in what order, and how it is spread over a mesh.

Values that users write and that the IR holds as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, cast

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError

MAX_MESH_AXES = 8  # as many as dimensions of a tensor


class Location(Enum):
    """A level of the memory hierarchy. The value is the spelling in the text form."""

    Global = "global"
    L2 = "l2"
    UB = "ub"
    L1 = "l1"

    def __repr__(self) -> str:
        return f"Location.{self.name}"


# --- memory ---


class MemOrder(Enum):
    """The value is the spelling in the text form."""

    ROW_MAJOR = "row_major"
    COL_MAJOR = "col_major"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True, repr=False)
class MemLayout:
    """How the elements of a tensor lie in memory: `row_major()` and `col_major()` without gaps,
    `strided(...)` with these distances between neighbours of each dimension, in elements."""

    order: MemOrder
    strides: tuple[int, ...] = ()  # of STRIDED

    def __post_init__(self) -> None:
        legal = all(isinstance(cast(object, s), int) and abs(s) < 2**63 for s in self.strides)
        if not legal or (self.strides and self.order is not MemOrder.STRIDED):
            why = "strides count elements, in 64 bits"
            raise _bad(f"MemLayout.strided{self.strides}", why, "pass integers")

    @staticmethod
    def row_major() -> MemLayout:
        """The last index runs fastest, as in C."""
        return MemLayout(MemOrder.ROW_MAJOR)

    @staticmethod
    def col_major() -> MemLayout:
        """The first index runs fastest, as in Fortran."""
        return MemLayout(MemOrder.COL_MAJOR)

    @staticmethod
    def strided(*strides: int) -> MemLayout:
        return MemLayout(MemOrder.STRIDED, strides)

    def __repr__(self) -> str:
        if self.order is not MemOrder.STRIDED:
            return self.order.value
        return f"{self.order.value}({', '.join(map(str, self.strides))})"

    @property
    def code(self) -> str:
        """How a user writes it."""
        strides = ", ".join(map(str, self.strides))
        return f"MemLayout.{self.order.value}({strides})"

    def inner(self, rank: int) -> Iterator[range]:
        """Without gaps: for each dimension those whose extents, multiplied, are its stride."""
        for dim in range(rank):
            is_row_major = self.order is MemOrder.ROW_MAJOR
            yield range(dim + 1, rank) if is_row_major else range(dim)

    def fits(self, shape: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether an array of these strides, in elements, lies so. A stride that no element is
        reached by says nothing."""
        wanted = self.strides
        if self.order is not MemOrder.STRIDED:
            wanted = tuple(math.prod(shape[d] for d in dims) for dims in self.inner(len(shape)))
        if 0 in shape:
            return True
        found = zip(shape, strides, wanted, strict=True)
        return all(stride == want for extent, stride, want in found if extent > 1)


# --- meshes ---


@dataclass(frozen=True, slots=True, repr=False)
class TensorShard:
    """A dimension that is cut into pieces along one axis of the mesh."""

    mesh_axis: int

    def __post_init__(self) -> None:
        axis = cast(object, self.mesh_axis)
        if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < MAX_MESH_AXES:
            raise _bad(
                f"TensorShard({axis!r})",
                f"a mesh has axes 0 to {MAX_MESH_AXES - 1}",
                "pass the number of one: TensorShard(0)",
            )

    def __repr__(self) -> str:
        return f"S({self.mesh_axis})"


@dataclass(frozen=True, slots=True, repr=False)
class TensorReplicate:
    """A dimension that every element of the mesh has whole."""

    def __repr__(self) -> str:
        return "R"


LayoutDim: TypeAlias = TensorShard | TensorReplicate


@dataclass(frozen=True, slots=True, repr=False)
class TensorLayout:
    """The layout of a tensor: for each dimension whether it is replicated or sharded, and, where
    that matters, the order of the elements in memory. A mesh axis shards at most one dimension."""

    dims: tuple[LayoutDim, ...]
    mem: MemLayout | None = None

    def __post_init__(self) -> None:
        given = cast(object, self.dims)
        listed = isinstance(given, list | tuple)
        dims = tuple(cast("tuple[object, ...]", given)) if listed else ()
        if not listed or not all(isinstance(d, TensorShard | TensorReplicate) for d in dims):
            raise _bad(
                f"TensorLayout({given!r})",
                "a layout has TensorShard(axis) or TensorReplicate() for each dimension",
                "write TensorLayout((TensorShard(0), TensorReplicate()))",
            )
        if not isinstance(cast(object, self.mem), MemLayout | None):
            raise _bad(
                f"TensorLayout(..., mem={self.mem!r})",
                "that says nothing of memory",
                "pass MemLayout.row_major(), col_major() or strided(...)",
            )
        object.__setattr__(self, "dims", dims)
        axes = self.axes
        if len(set(axes)) != len(axes):
            raise _bad(
                f"TensorLayout({self!r})",
                "a mesh axis shards at most one dimension",
                "shard along other axes, or replicate",
            )
        if self.mem is not None and self.mem.order is MemOrder.STRIDED:
            strides = len(self.mem.strides)
            if strides != self.rank:
                raise _bad(
                    f"TensorLayout({self!r})",
                    f"it has {self.rank} dimensions and {strides} strides",
                    "give each dimension a stride",
                )

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def axes(self) -> tuple[int, ...]:
        """The mesh axes that shard a dimension."""
        return tuple(dim.mesh_axis for dim in self.dims if isinstance(dim, TensorShard))

    def __repr__(self) -> str:
        mem = "" if self.mem is None else f" in {self.mem!r}"
        return f"[{', '.join(map(repr, self.dims))}]{mem}"

    @property
    def code(self) -> str:
        """How a user writes it."""
        names = [
            f"TensorShard({dim.mesh_axis})" if isinstance(dim, TensorShard) else "TensorReplicate()"
            for dim in self.dims
        ]
        dims = f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
        return f"TensorLayout({dims}{'' if self.mem is None else f', {self.mem.code}'})"

    def join(self, other: TensorLayout) -> TensorLayout:
        """The layout in which tensors of both may be used together, aligned at the last dimension:
        R and S(0) are S(0), equal ones stay; anything else is a TypeCheckError."""
        why = clash(self, other, "the first", "the second")
        if why is not None:
            raise TypeCheckError(
                Code.LAYOUTS_APART,
                f"{self!r} and {other!r} do not join",
                loc=srcloc.here(),
                why=why,
                fix="relayout one of the two",
            )
        long, short = (self, other) if self.rank >= other.rank else (other, self)
        extra = long.rank - short.rank
        pairs = zip(long.dims[extra:], short.dims, strict=True)
        joined = tuple(a if isinstance(a, TensorShard) else b for a, b in pairs)
        return TensorLayout((*long.dims[:extra], *joined), _joined_mem(self, other))

    def fitted(self, other: TensorLayout) -> TensorLayout:
        """`other` with its dimensions changed as far as it takes to join this one."""
        extra = other.rank - self.rank
        taken = {TensorShard(axis) for axis in self.axes}
        own = other.dims[: max(extra, 0)]
        free = tuple(TensorReplicate() if dim in taken else dim for dim in own)
        return TensorLayout((*free, *self.dims[max(-extra, 0) :]), other.mem)


def _joined_mem(a: TensorLayout, b: TensorLayout) -> MemLayout | None:
    """What one of them says; strides say nothing of a tensor of more dimensions."""
    mem = a.mem or b.mem
    if mem is None or mem.order is not MemOrder.STRIDED:
        return mem
    return mem if len(mem.strides) == max(a.rank, b.rank) else None


def clash(a: TensorLayout, b: TensorLayout, first: str, second: str) -> str | None:
    """Why two layouts do not join, in words; None if they do."""
    for back in range(1, min(a.rank, b.rank) + 1):
        x, y = a.dims[-back], b.dims[-back]
        if isinstance(x, TensorShard) and isinstance(y, TensorShard) and x != y:
            there = f"dimension {b.rank - back} of {second} is {y!r}"
            return f"dimension {a.rank - back} of {first} is {x!r}, {there}"
    for axis in (axis for axis in a.axes if axis in b.axes):
        mine, theirs = a.dims.index(TensorShard(axis)), b.dims.index(TensorShard(axis))
        if a.rank - mine != b.rank - theirs:
            both = f"dimension {mine} of {first} and dimension {theirs} of {second}"
            return f"mesh axis {axis} shards {both}, and may shard only one dimension"
    if a.mem is not None and b.mem is not None and a.mem != b.mem:
        return f"{first} is {a.mem!r} in memory, {second} {b.mem!r}"
    return None


def _bad(what: str, why: str, fix: str) -> TypeCheckError:
    return TypeCheckError(Code.LAYOUT, what, loc=srcloc.here(), why=why, fix=fix)
