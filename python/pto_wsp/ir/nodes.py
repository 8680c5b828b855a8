"""All nodes of the workload IR.

    module   := Module(name, symbols, tensors, kernels, body, schedule)
    body     := stmt*                                  no order between statements
    stmt     := Loop(var, axis, ..., body)             parallel (P, P.sel) or sequential (P.seq)
              | While(var, condition, limit, body)     repeats while the condition holds
              | Cond(condition, then, otherwise)       one of two bodies
              | Combine(branches: body*)               no order between branches
              | Sequential(steps: body*)               each step waits for the one before it
              | SlotSet(slot, value)                   control's own variable
              | SlotLoad(slot, region)                 the same, from data that tasks may write
              | Alloc(tensor, shape)                   a temporary for the rest of the body
              | Call(kernel, indices, args)            generates one task
              | Send(channel, body: Call)              passes the message that the task writes
              | Consume(var, channel, body)            once for each message, until it is closed
              | Receive(channel)                       one message for the rest of the body
              | Close(channel)                         no more messages from this process
              | Network(processes)                     bodies of their own, joined by channels
    arg      := Region(tensor, (DimSlice(start, extent, step, dropped), ...), layout) | expr
    expr     := Const | FloatConst | LoopVar | Column | SymbolRef | ShapeOf | ArrayLoad | SlotRef
              | BoundVar | Binary | Not | Select | Reduce | Search
              | TaskAxis | TaskSite | TaskOrdinal      in keys of a schedule only

Expressions have a type, i64, bool or f64 (`expr_type`); f64 is only passed on, never computed with.
Nodes are frozen and compare by value; source positions do not take part in comparisons. Names are
unique: a loop variable is bound once on any path from the root, symbols, tensors and kernels are
declared once per module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from pto_wsp.dtypes import DType
from pto_wsp.ir.layout import Location, TensorLayout
from pto_wsp.srcloc import SrcLoc

# --- expressions: pure -------------------------------------------------------------------------


class ExprType(Enum):
    """The value is the spelling in messages."""

    I64 = "integer"
    BOOL = "boolean"
    F64 = "floating-point"


class BinaryOp(Enum):
    """Operators with Python's meaning. The value is the spelling in the text form. AND and OR
    evaluate both sides."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    FLOORDIV = "//"
    MOD = "%"
    MIN = "min"
    MAX = "max"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "and"
    OR = "or"


COMPARISONS = frozenset(
    {BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE}
)
LOGIC = frozenset({BinaryOp.AND, BinaryOp.OR})


class ReduceOp(Enum):
    """How the values of a Reduce become one. The value is the spelling in the text form."""

    SUM = "sum"
    MIN = "least"
    MAX = "largest"
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class FloatConst:
    """A floating-point constant, by its bits: NaNs are equal to themselves here."""

    bits: int


@dataclass(frozen=True, slots=True)
class LoopVar:
    """The variable of an enclosing loop."""

    name: str


@dataclass(frozen=True, slots=True)
class Column:
    """The column index at which an enclosing sparse loop stands."""

    loop: str


@dataclass(frozen=True, slots=True)
class SlotRef:
    """The value of a slot that an earlier statement of this or an enclosing iteration set."""

    slot: str


@dataclass(frozen=True, slots=True)
class BoundVar:
    """The variable of an enclosing Reduce or Search, 0 for the outermost."""

    level: int


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
    """One element of an array symbol; `column` is the second index of a 2-D one."""

    array: str
    index: Expr
    column: Expr | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr


@dataclass(frozen=True, slots=True)
class Select:
    """`then` if the condition holds, else `otherwise`; only the chosen one is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Reduce:
    """The values of the body for lo, lo + 1, ... hi - 1 as one; its variable is BoundVar(level)."""

    op: ReduceOp
    level: int
    lo: Expr
    hi: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Search:
    """The smallest x from lo to hi - 1 for which the predicate holds, else hi. The predicate must
    be monotone: once it holds it goes on to hold."""

    level: int
    lo: Expr
    hi: Expr
    predicate: Expr


@dataclass(frozen=True, slots=True)
class TaskAxis:
    """In keys of a schedule: the task's index of the innermost loop over that axis, or `default`
    for tasks that are in none."""

    axis: str
    default: int | None = None


@dataclass(frozen=True, slots=True)
class TaskSite:
    """In keys of a schedule: the number of the call that made the task."""


@dataclass(frozen=True, slots=True)
class TaskOrdinal:
    """In keys of a schedule: the task's number in program order."""


Expr: TypeAlias = (
    Const
    | FloatConst
    | LoopVar
    | Column
    | SymbolRef
    | ShapeOf
    | ArrayLoad
    | SlotRef
    | BoundVar
    | Binary
    | Not
    | Select
    | Reduce
    | Search
    | TaskAxis
    | TaskSite
    | TaskOrdinal
)

# --- declarations ------------------------------------------------------------------------------


class SymbolKind(Enum):
    """What a name is bound to at execute. The value is the spelling in the text form."""

    EXTENT = "extent"
    SCALAR = "scalar"
    ARRAY = "array"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class SymbolDecl:
    """A name that `execute(...)` binds: an extent, a number, or an integer array of one or two
    dimensions that control reads."""

    name: str
    kind: SymbolKind
    dtype: DType = DType.I64
    default: int | float | None = None
    loc: SrcLoc | None = field(default=None, compare=False)
    rank: int = 1


class TensorKind(Enum):
    """Where the data is. The value is the spelling in the text form."""

    BOUND = "tensor"
    TEMP = "temp"
    TOKEN = "token"
    PAGED = "paged"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class Slots:
    """The buffers of a channel: how many there are (0: a message is passed on only when somebody
    waits for it), how many messages of zeros are there at the start, and how many cycles a message
    takes on a virtual clock."""

    depth: int
    initial: int = 0
    latency: int = 0


@dataclass(frozen=True, slots=True)
class Pages:
    """How a paged tensor lies in others: rows of `table` are the page numbers of a sequence, each
    page is `page` tokens of `pool` (None: as many as the pool says)."""

    pool: str
    table: str
    page: int | None = None


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """Data that tasks read and write. Shape and strides of BOUND ones are bound at execute, and
    `fixed` has the extents that they must have (None: any); an Alloc makes a TEMP; a TOKEN has a
    shape and no data; PAGED ones lie in the pages of a pool, in coordinates [sequence, token, ...];
    a CHANNEL is the message that a process sends or has. All have a location; some have a layout.
    """

    name: str
    dtype: DType
    rank: int
    loc: SrcLoc | None = field(default=None, compare=False)
    kind: TensorKind = TensorKind.BOUND
    shape: tuple[Expr, ...] = ()  # of a TOKEN, over symbols; of a CHANNEL, constants
    pages: Pages | None = None
    location: Location = Location.Global
    layout: TensorLayout | None = None
    slots: Slots | None = None
    fixed: tuple[int | None, ...] = ()


class Mode(Enum):
    """What a kernel does to a parameter. The value is the spelling in the text form."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    ACCUM = "accum"


class ViewKind(Enum):
    """What a kernel sees of a region. The value is the spelling in the text form."""

    STRIDED = "strided"
    PAGED = "paged"  # tokens of one sequence, on any pages
    TOKEN = "token"  # nothing


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """A tensor parameter of a kernel, specialised to a dtype and to the rank it sees. `shape` is
    that of a tile parameter, which is fixed, and `location` where its region must lie."""

    name: str
    mode: Mode
    dtype: DType
    rank: int
    shape: tuple[int, ...] | None = None
    view: ViewKind = ViewKind.STRIDED
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class ScalarDecl:
    """A scalar parameter: each task has a value."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class ConstexprDecl:
    """A parameter with one value for the specialisation."""

    name: str
    dtype: DType
    value: int | float


AnyParam: TypeAlias = ParamDecl | ScalarDecl | ConstexprDecl


class BodyForm(Enum):
    """How a kernel body is given. The value is the spelling in the text form."""

    PYTHON = "python"
    CPP = "cpp"
    TILE_IR = "tile"


class ExecUnit(Enum):
    """Which kind of core runs a kernel. The value is the spelling in the text form, and what users
    write."""

    ANY = "any"
    VECTOR = "vector"
    CUBE = "cube"


@dataclass(frozen=True, slots=True)
class KernelDecl:
    """A kernel specialised to the dtypes and ranks of its arguments.

    `source` is the C++ body, the text form of tile operations, or the qualified name of the Python
    function; `includes` are the lines that go above a C++ body.
    """

    name: str
    params: tuple[AnyParam, ...]
    form: BodyForm
    source: str
    includes: tuple[str, ...] = ()
    loc: SrcLoc | None = field(default=None, compare=False)
    exec_unit: ExecUnit = ExecUnit.ANY


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
    SPARSE = "sparse"
    TILED = "tiled"
    EXPR = "expr"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over start .. start + extent - 1; `axis` is the user's name of the axis. RAGGED names
    its lengths array and the loop variable that indexes it, SPARSE its indptr array (as lengths),
    its column indices, and the variable of the row. TILED has its tile size."""

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
    indices: str | None = None
    tile: Expr | None = None
    padded: bool = False


@dataclass(frozen=True, slots=True)
class While:
    """Repeats while the condition holds; its variable counts from 0. The condition still holding
    after `limit` iterations is an error."""

    var: str
    axis: str
    condition: Expr
    limit: Expr
    body: Body
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Cond:
    condition: Expr
    then: Body
    otherwise: Body = ()
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SlotSet:
    """Gives a slot a value. The first statement that names a slot declares it: the slot belongs to
    the iteration around that statement."""

    slot: str
    value: Expr
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """Gives a slot the value of one element of a tensor, once its writers have ended."""

    slot: str
    region: Region
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Alloc:
    """Gives a temporary a buffer of its own for the statements behind it in this body. What it
    holds is undefined until tasks write it."""

    tensor: str
    shape: tuple[Expr, ...]
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
    """A part of a tensor. `layout` is that of the whole tensor here, where it is not the one that
    was declared."""

    tensor: str
    dims: tuple[DimSlice, ...]
    layout: TensorLayout | None = None


@dataclass(frozen=True, slots=True)
class After:
    """Tasks of a labelled call that a task waits for: those of the current iteration of the loops
    that both are in, or the one at `indices` of the innermost loops around that call."""

    label: str
    indices: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call: one argument per kernel parameter that is not constexpr, in parameter order:
    regions for tensors, expressions for scalars."""

    kernel: str
    indices: tuple[Expr, ...]
    args: tuple[Argument, ...]
    loc: SrcLoc | None = field(default=None, compare=False)
    label: str | None = None  # by which calls behind it refer to it
    after: tuple[After, ...] = ()
    fields: tuple[tuple[str, Expr], ...] = ()  # of its descriptor, beside the loop indices
    stage: str | None = None  # the part of a composed graph that it belongs to

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(arg for arg in self.args if isinstance(arg, Region))


@dataclass(frozen=True, slots=True)
class Send:
    """Takes a buffer of the channel, has the one call of its body write it, and passes it on."""

    channel: str
    body: Body
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Consume:
    """Its body once for each message of a channel, until that is closed; the variable is the number
    of the message. There is no order among messages beyond that of data."""

    var: str
    channel: str
    body: Body
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Receive:
    """The next message of a channel, for the rest of the body. A closed channel is an error."""

    channel: str
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Close:
    """No more messages come from this process. At its end a process closes what it produces."""

    channel: str
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Process:
    """A part of a program that goes on by itself. The body of a replicated one is a single parallel
    loop, each of whose iterations is a process."""

    name: str
    body: Body
    replicated: bool = False
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Network:
    """Processes, between which channels alone order tasks; the last statement of a module. The
    statements in front of it are a process, too."""

    processes: tuple[Process, ...]
    loc: SrcLoc | None = field(default=None, compare=False)


Argument: TypeAlias = Region | Expr
ChannelStmt: TypeAlias = Send | Consume | Receive | Close
Stmt: TypeAlias = (
    Loop
    | While
    | Cond
    | Combine
    | Sequential
    | SlotSet
    | SlotLoad
    | Alloc
    | Call
    | ChannelStmt
    | Network
)
Body: TypeAlias = tuple[Stmt, ...]

# --- schedule and module -----------------------------------------------------------------------


DirectiveArg: TypeAlias = int | str | Expr | None


@dataclass(frozen=True, slots=True)
class Directive:
    """A schedule directive: the name of its id in enums.def, and its arguments, of which
    expressions are keys."""

    name: str
    args: tuple[DirectiveArg, ...] = ()
    loc: SrcLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    symbols: tuple[SymbolDecl, ...]
    tensors: tuple[TensorDecl, ...]
    kernels: tuple[KernelDecl, ...]
    body: Body
    schedule: tuple[Directive, ...] = ()
