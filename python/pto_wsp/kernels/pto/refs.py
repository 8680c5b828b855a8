"""The parameters of a tile kernel: tiles, which are loaded where they are used, and tensors."""

from __future__ import annotations

from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.indexing import DimIndex, dim_indices, offset
from pto_wsp.kernels.pto.trace import Trace, current
from pto_wsp.kernels.pto.values import (
    Loadable,
    ScalarValue,
    TileValue,
    TracedValue,
    tile,
    wrap,
)
from pto_wsp.kernels.tile_ir import Op, RefType, Value
from pto_wsp.plan import AccessMode


class Ref(Loadable):
    """A tensor parameter: `x[...]` is a part of it, `x.shape` its extents in this run."""

    __slots__ = ("_loaded", "trace", "type", "value")

    def __init__(self, trace: Trace, value: Value, ref: RefType) -> None:
        self.trace = trace
        self.value = value
        self.type = ref
        self._loaded: TracedValue | None = None
        trace.forget.append(self._forget)

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of a tile its constant extents, of a tensor i64 scalars."""
        if self.type.tile is not None:
            return self.type.tile
        return tuple(self.extent(dim) for dim in range(self.type.rank))

    def extent(self, dim: int) -> ScalarValue:
        """How many elements there are in this run, for partial tiles too."""
        (made,) = self.trace.emit(Op.EXTENT, [self.check("extent")], (("dim", dim),))
        return ScalarValue(self.trace, self.trace.frame, made)

    @property
    def T(self) -> TileValue:  # noqa: N802 - as NumPy calls it
        return tile(Op.TRANSPOSE, [self.loaded("transpose")], "transpose")

    def __getitem__(self, index: Any) -> RefPart:
        extents = self.type.tile or (None,) * self.type.rank
        return RefPart(self, dim_indices(index, tuple(extents), f"{self.name}[...]"))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise current("an assignment").error(
            Code.TILE_REFERENCE,
            f"an assignment to {self.name}[...]",
            "tile code is traced; it writes with pto.store",
            f'write pto.store({self.name}[...], value), or say @kernel(body="python") for NumPy',
        )

    def check(self, what: str) -> Value:
        """The parameter, for an operation of the current trace."""
        trace = current(f"pto.{what}")
        if trace is self.trace:
            return self.value
        raise trace.error(
            Code.TILE_ESCAPED,
            f"{what} of parameter {self.name} of kernel {self.trace.name}",
            f"it exists only there; this is kernel {trace.name}",
            "pass it as a parameter",
        )

    def whole(self, what: str) -> RefPart:
        """All of a tile parameter."""
        if self.type.tile is None and self.type.rank > 0:
            raise current(what).error(
                Code.TILE_REFERENCE,
                f"{what} of {self.name}, all of it",
                "a Tensor parameter has no constant extents",
                f"load a part, pto.load({self.name}[0:16, 0:64]), or declare a Tile[...]",
                TypeCheckError,
            )
        return self[...] if self.type.rank else RefPart(self, [])

    def loaded(self, what: str) -> TracedValue:
        """The tile in it, loaded once until somebody may have written it."""
        if self._loaded is None:
            made = self.whole(what).loaded(what)
            self._loaded = made
            return made
        return self._loaded

    def written(self) -> None:
        self._loaded = None

    def _forget(self) -> None:
        # A parameter that is only read holds the same in every block; its tile exists in one.
        only_read = self.type.mode is AccessMode.IN
        if not only_read or self._loaded is None or not self._loaded.exists:
            self._loaded = None


class RefPart(Loadable):
    """A part of a parameter, to load or to store."""

    __slots__ = ("dims", "ref")

    def __init__(self, ref: Ref, dims: list[DimIndex]) -> None:
        self.ref = ref
        self.dims = dims

    @property
    def dtype(self) -> DType:
        return self.ref.dtype

    def place(self, what: str) -> tuple[Value, list[Value], tuple[int, ...]]:
        """The parameter, its offsets, and the sizes."""
        ref = self.ref.check(what)
        offsets = [offset(dim.start).traced(what) for dim in self.dims]
        return ref, offsets, tuple(dim.size for dim in self.dims)

    def load(self) -> TracedValue:
        ref, offsets, sizes = self.place("load")
        trace = self.ref.trace
        (made,) = trace.emit(Op.LOAD, [ref, *offsets], (("sizes", sizes),))
        return wrap(trace, made)

    def loaded(self, what: str) -> TracedValue:
        if self.ref.type.tile is not None or self.ref.type.rank == 0:
            made = self.load()
            self.ref.trace.rename(made.traced(what), self.ref.name)
            return made
        raise current(what).error(
            Code.TILE_REFERENCE,
            f"{what} of a part of the tensor {self.ref.name}",
            "a Tensor parameter is memory; tiles are loaded from it",
            f"write pto.load({self.ref.name}[...])",
            TypeCheckError,
        )
