"""What the Triton form of a tile kernel is made for, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pto_wsp.dtypes import DType


@dataclass(frozen=True, slots=True)
class ParamFacts:
    """What is known of a tensor parameter's regions before the kernel runs. Whatever is known is
    written into the source and is no argument; None is an argument.

    An extent may be that of another parameter, named with its dimension: `("k", 0)`. Then it is no
    argument either, and loads of both are as long as each other.

    `whole`: loads and stores of this dimension never reach beyond its end, so nothing is masked
    there; one truth value stands for all dimensions, and says of a tile that its extents are those
    of its type. `aligned`: the offset and every stride that is
    an argument (but the last) is a multiple of so many elements. `cache` is the cache modifier of
    loads (".cg": past the first level). `pages_of` names a parameter, declared before, whose tokens
    lie on pages of the same numbers: its table and its first token are those of this one too."""

    extents: tuple[int | tuple[str, int] | None, ...] = ()
    strides: tuple[int | None, ...] = ()
    whole: bool | tuple[bool, ...] = False
    aligned: int = 1
    page: int | None = None
    page_stride: int | None = None
    table_stride: int | None = None
    pages_of: str = ""
    cache: str = ""

    def extent(self, dim: int) -> int | None:
        found = self.extents[dim] if dim < len(self.extents) else None
        return found if isinstance(found, int) else None

    def same_extent(self, dim: int) -> tuple[str, int] | None:
        found = self.extents[dim] if dim < len(self.extents) else None
        return found if isinstance(found, tuple) else None

    def stride(self, dim: int) -> int | None:
        return self.strides[dim] if dim < len(self.strides) else None

    def is_whole(self, dim: int) -> bool:
        if isinstance(self.whole, bool):
            return self.whole
        return dim < len(self.whole) and self.whole[dim]


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """`params` by the name of the parameter. `shared`: the names of parameters that may lie in the
    same memory. `num_stages` is that of every loop. f32 products are exact unless `tf32`; `narrow`:
    where one operand of an f32 product was f16 or bf16, the other is rounded to that as well, and
    the product adds up in f32. `faults`: a task that fails says so through its last argument."""

    params: Mapping[str, ParamFacts] = field(default_factory=dict[str, ParamFacts])
    shared: frozenset[str] = frozenset()
    num_stages: int | None = None
    tf32: bool = False
    narrow: bool = False
    faults: bool = True


class Role(Enum):
    """What an argument of the Triton function is."""

    POINTER = "pointer"  # to the first element of the storage, or of the pool of pages
    OFFSET = "offset"  # elements from there to the region, i64
    EXTENT = "extent"  # of the region in `dim`
    STRIDE = "stride"  # elements between neighbours in `dim`; of tokens: within a page
    TABLE = "table"  # pointer to the page numbers
    TABLE_OFFSET = "table_offset"  # entries from there to the row of the sequence, i64
    TABLE_STRIDE = "table_stride"  # entries between neighbours of that row
    FIRST = "first"  # the token of the sequence with which the region begins
    PAGE = "page"  # tokens of a page
    PAGE_STRIDE = "page_stride"  # elements between pages of the pool
    SCALAR = "scalar"
    FAULT = "fault"  # pointer to an i32: the number of a fault is written there


@dataclass(frozen=True, slots=True)
class TritonArgument:
    """One parameter of the Triton function. `param` is the position of the kernel's parameter it
    belongs to, -1 if none; `dtype` that of what it points to, or of a scalar."""

    name: str
    role: Role
    param: int = -1
    dim: int = -1
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class TritonSource:
    """`text` defines one function, decorated with `triton.jit`, which needs `triton`, `tl` and the
    functions named in `helpers` (`helper_text`). Fault n is `faults[n - 1]`: what and where."""

    name: str
    text: str
    helpers: tuple[str, ...]
    arguments: tuple[TritonArgument, ...]
    faults: tuple[str, ...] = ()
