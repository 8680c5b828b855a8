"""Tile kernels as data: what tracing makes, what travels in a plan, what emitters read.

A kernel is a list of statements in SSA form. Values are scalars or tiles. A tile has two dimensions
whose extents are known when the kernel is compiled; at run time it may be partial: a load at the
edge of a tensor has fewer rows or columns. What operations do with partial tiles is one rule: they
compute where all their operands have elements (an operand whose extent is 1 has them everywhere).
Reductions and products see those elements only, and a store writes those only. An extent of 1 is
never partial: what has one row or column has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir.ops import Op
from pto_wsp.plan import AccessMode
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class ScalarType:
    dtype: DType


@dataclass(frozen=True, slots=True)
class TileType:
    """`partial` says for rows and for columns whether there may be fewer at run time."""

    dtype: DType
    rows: int
    cols: int
    partial: tuple[bool, bool] = (False, False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.cols


@dataclass(frozen=True, slots=True)
class RefType:
    """A tensor parameter. `tile`: the largest extents, if its annotation gives them. `paged`: its
    first dimension is tokens that lie on pages."""

    dtype: DType
    rank: int
    mode: AccessMode
    tile: tuple[int, ...] | None = None
    paged: bool = False


Type: TypeAlias = ScalarType | TileType | RefType


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value. Numbers are unique in a kernel; a name is the user's, for people who read."""

    number: int
    type: Type
    name: str = field(default="", compare=False)


Attribute: TypeAlias = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The inside of a loop or branch. A loop's first parameter is its index; the others are what is
    carried, and `yields` is what the next iteration, or the result, gets. Carried tiles keep their
    dtype and shape; their parameter is partial where what comes in, or what is yielded, may be."""

    params: tuple[Value, ...]
    body: tuple[Statement, ...]
    yields: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One operation. FOR has one block; WHEN has two, without parameters, the second for the case
    that the condition does not hold."""

    op: Op
    results: tuple[Value, ...]
    operands: tuple[Value, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    blocks: tuple[Block, ...] = ()
    loc: SrcLoc | None = field(default=None, compare=False)

    def attribute(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TileKernel:
    """A whole kernel. Parameters are references and scalars, in the order of the declaration;
    Constexpr parameters have become constants."""

    name: str
    params: tuple[Value, ...]
    body: tuple[Statement, ...]
    loc: SrcLoc | None = field(default=None, compare=False)
