"""All nodes of the workload IR.

    module   := Module(name, symbols, tensors, kernels, body, schedule)
    body     := stmt*                                  no order between statements
    stmt     := Loop(var, axis, ..., body)             parallel (P) or sequential (P.seq)
              | Combine(branches: body*)               no order between branches
              | Sequential(steps: body*)               each step waits for the one before it
              | Call(kernel, indices, args)            generates one task
    region   := Region(tensor, (DimSlice(start, extent, step, dropped), ...))
    expr     := Const | LoopVar | SymbolRef | ShapeOf | ArrayLoad | Binary

Nodes are frozen and compare by value; source positions do not take part in comparisons. Names are
unique: a loop variable is bound once on any path from the root, symbols, tensors and kernels are
declared once per module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from pto_wsp.dtypes import DType
from pto_wsp.srcloc import SrcLoc

# --- expressions: pure, 64-bit integer ---------------------------------------------------------


class BinaryOp(Enum):
    """Integer operators, with Python's meaning. The value is the spelling in the text form."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    FLOORDIV = "//"
    MOD = "%"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class LoopVar:
    """The variable of an enclosing loop."""

    name: str


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """The value of an extent or scalar symbol."""

    name: str


@dataclass(frozen=True, slots=True)
class ShapeOf:
    """The bound extent of one dimension of a tensor."""

    tensor: str
    dim: int


@dataclass(frozen=True, slots=True)
class ArrayLoad:
    """One element of an array symbol."""

    array: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    lhs: Expr
    rhs: Expr


Expr: TypeAlias = Const | LoopVar | SymbolRef | ShapeOf | ArrayLoad | Binary

# --- declarations ------------------------------------------------------------------------------


class SymbolKind(Enum):
    """What a name is bound to at execute. The value is the spelling in the text form."""

    EXTENT = "extent"
    ARRAY = "array"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class SymbolDecl:
    """A name that `execute(...)` binds: an extent or an integer array that control reads."""

    name: str
    kind: SymbolKind
    dtype: DType = DType.I64
    default: int | None = None
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """Data that tasks read and write; shape and strides are bound at execute."""

    name: str
    dtype: DType
    rank: int
    loc: SrcLoc | None = field(default=None, compare=False)


class Mode(Enum):
    """What a kernel does to a parameter. The value is the spelling in the text form."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """A tensor parameter of a kernel, specialised to a dtype and to the rank it sees."""

    name: str
    mode: Mode
    dtype: DType
    rank: int


class BodyForm(Enum):
    """How a kernel body is given. The value is the spelling in the text form."""

    PYTHON = "python"
    CPP = "cpp"


@dataclass(frozen=True, slots=True)
class KernelDecl:
    """A kernel specialised to the dtypes and ranks of its arguments.

    `source` is the C++ body, or the qualified name of the Python function; `includes` are the lines
    that go above a C++ body.
    """

    name: str
    params: tuple[ParamDecl, ...]
    form: BodyForm
    source: str
    includes: tuple[str, ...] = ()
    loc: SrcLoc | None = field(default=None, compare=False)


# --- statements --------------------------------------------------------------------------------


class Order(Enum):
    """Order among the iterations of a loop. The value is the spelling in the text form."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


class AxisKind(Enum):
    """Where an extent comes from. The value is the spelling in the text form."""

    DENSE = "dense"
    DENSE_DYN = "dense_dyn"
    RAGGED = "ragged"
    EXPR = "expr"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over start .. start + extent - 1. RAGGED names its lengths array and the loop variable
    that indexes it; `axis` is the user's name of the axis."""

    var: str
    axis: str
    kind: AxisKind
    order: Order
    start: Expr
    extent: Expr
    body: Body
    lengths: str | None = None
    parent: str | None = None
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Combine:
    branches: tuple[Body, ...]
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Sequential:
    steps: tuple[Body, ...]
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DimSlice:
    """start, start + step, ... (extent elements). A dropped dimension has extent 1 and is not seen
    by the kernel."""

    start: Expr
    extent: Expr
    step: Expr
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Region:
    tensor: str
    dims: tuple[DimSlice, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call: one argument per kernel parameter, in parameter order."""

    kernel: str
    indices: tuple[Expr, ...]
    args: tuple[Region, ...]
    loc: SrcLoc | None = field(default=None, compare=False)


Stmt: TypeAlias = Loop | Combine | Sequential | Call
Body: TypeAlias = tuple[Stmt, ...]

# --- schedule and module -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directive:
    """A schedule directive: the name of its id in enums.def, and its arguments."""

    name: str
    args: tuple[int | str | None, ...] = ()
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    symbols: tuple[SymbolDecl, ...]
    tensors: tuple[TensorDecl, ...]
    kernels: tuple[KernelDecl, ...]
    body: Body
    schedule: tuple[Directive, ...] = ()
