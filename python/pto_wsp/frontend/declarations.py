"""The names of a workload: symbols, tensors and kernels, each declared once.

Used while tracing, and again when workloads are composed: one name is one binding.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pto_wsp import ir
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import extents
from pto_wsp.frontend.memory import same_memory
from pto_wsp.frontend.tensor import Tensor

if TYPE_CHECKING:
    from pto_wsp.srcloc import SrcLoc

Default: TypeAlias = int | float | npt.NDArray[Any] | Tensor
Owner = TypeVar("Owner", bound=Hashable)


class Declarations:
    """What a module declares, in the order of declaration, with the default bindings."""

    def __init__(self) -> None:
        self.symbols: dict[str, ir.SymbolDecl] = {}
        self.tensors: dict[str, ir.TensorDecl] = {}
        self.defaults: dict[str, Default] = {}

    def add_symbol(self, decl: ir.SymbolDecl, default: Default | None, loc: SrcLoc | None) -> None:
        """Declare an extent or an array. `loc` is where a clash is reported."""
        known = self.symbols.get(decl.name)
        if known is not None and known.kind is not decl.kind:
            raise _clash(decl.name, known.kind.value, decl.kind.value, loc)
        if known is not None and (known.dtype, known.rank) != (decl.dtype, decl.rank):
            raise _clash(decl.name, type_text(known), type_text(decl), loc)
        if decl.name in self.tensors:
            raise _clash(decl.name, "tensor", decl.kind.value, loc)
        self._set_default(decl.name, default, loc)
        self.symbols.setdefault(decl.name, decl)

    def add_tensor(self, decl: ir.TensorDecl, default: Default | None, loc: SrcLoc | None) -> None:
        """Declare a tensor. `loc` is where a clash is reported."""
        if decl.name in self.symbols:
            raise _clash(decl.name, self.symbols[decl.name].kind.value, "tensor", loc)
        known = self.tensors.get(decl.name)
        if known is not None and replace(known, fixed=()) != replace(decl, fixed=()):
            raise _clash(decl.name, type_text(known), type_text(decl), loc)
        self._set_default(decl.name, default, loc)
        self.tensors.setdefault(decl.name, decl)
        self.fix_extents(decl.name, decl.fixed, loc)

    def fix_extents(self, name: str, wanted: extents.Extents, loc: SrcLoc | None) -> None:
        """What is bound to that name has to have these extents."""
        decl = self.tensors[name]
        self.tensors[name] = replace(decl, fixed=extents.joined(name, decl.fixed, wanted, loc))

    def _set_default(self, name: str, default: Default | None, loc: SrcLoc | None) -> None:
        if default is None:
            return
        known = self.defaults.setdefault(name, default)
        if not same_default(known, default):
            raise CompileError(
                Code.NAME_CLASH,
                f"two different defaults for {name}",
                loc=loc,
                why=f"{_show(known)} and {_show(default)} have one name, and a name is one binding",
                fix="give them different names, with Tensor(name=...) or as other parameters",
            )


def same_default(a: Default, b: Default) -> bool:
    """Whether two defaults are the same binding: equal extents, or one memory."""
    match a, b:
        case ((int() | float()), (int() | float())):
            return a == b
        case Tensor(), Tensor():
            return a is b or (
                a.data is not None and b.data is not None and same_memory(a.data, b.data)
            )
        case np.ndarray(), np.ndarray():
            return same_memory(a, b)
        case _:
            return False


class KernelNames(Generic[Owner]):
    """Gives each specialisation of each kernel a name of its own: cell, cell.2, cell.3."""

    def __init__(self) -> None:
        self.decls: dict[str, ir.KernelDecl] = {}
        self.owners: dict[str, Owner] = {}
        self._names: dict[tuple[Owner, tuple[ir.AnyParam, ...]], str] = {}

    def name_of(self, owner: Owner, decl: ir.KernelDecl) -> str:
        """The name in the module of a kernel specialised to the parameters of `decl`, whose name is
        the kernel's own. `owner` is the object that the user made: it tells apart kernels of equal
        names."""
        key = (owner, decl.params)
        known = self._names.get(key)
        if known is not None:
            return known
        name, number = decl.name, 2
        while name in self.decls:
            name, number = f"{decl.name}.{number}", number + 1
        self._names[key] = name
        self.decls[name] = replace(decl, name=name)
        self.owners[name] = owner
        return name


def type_text(decl: ir.SymbolDecl | ir.TensorDecl) -> str:
    """What messages call a declaration."""
    if isinstance(decl, ir.SymbolDecl):
        rank = ", rank 2" if decl.rank == 2 else ""
        return f"{decl.kind.value} of {decl.dtype.text}{rank}"
    if decl.kind is ir.TensorKind.TOKEN:
        return f"token of shape ({', '.join(ir.expr_text(size) for size in decl.shape)})"
    pages = "" if decl.pages is None else f" in {decl.pages.pool} by {decl.pages.table}"
    where = "" if decl.location is ir.Location.Global else f", in {decl.location.name}"
    layout = "" if decl.layout is None else f", layout {decl.layout!r}"
    return f"{decl.kind.value} of {decl.dtype.text}, rank {decl.rank}{pages}{where}{layout}"


def _show(default: Default) -> str:
    return str(default) if isinstance(default, int | float) else f"a {type(default).__name__}"


def _clash(name: str, one: str, other: str, loc: SrcLoc | None) -> CompileError:
    return CompileError(
        Code.NAME_CLASH,
        f"{name} is two things: {one} and {other}",
        loc=loc,
        why="execute(...) binds by name, and a name is one binding",
        fix="rename one of them",
    )
