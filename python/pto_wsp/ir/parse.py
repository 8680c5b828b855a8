"""Reads the text form of a module (see text.py); a CompileError names the line and the column."""

from __future__ import annotations

import struct

from pto_wsp.dtypes import DType
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir.layout import (
    LayoutDim,
    Location,
    MemLayout,
    MemOrder,
    TensorLayout,
    TensorReplicate,
    TensorShard,
)
from pto_wsp.ir.nodes import (
    After,
    Alloc,
    AnyParam,
    Argument,
    ArrayLoad,
    AxisKind,
    Binary,
    BinaryOp,
    Body,
    BodyForm,
    BoundVar,
    Call,
    Close,
    Column,
    Combine,
    Cond,
    Const,
    ConstexprDecl,
    Consume,
    DimSlice,
    Directive,
    DirectiveArg,
    ExecUnit,
    Expr,
    FloatConst,
    KernelDecl,
    Loop,
    LoopVar,
    Mode,
    Module,
    Network,
    Not,
    Order,
    Pages,
    ParamDecl,
    Process,
    Receive,
    Reduce,
    ReduceOp,
    Region,
    ScalarDecl,
    Search,
    Select,
    Send,
    Sequential,
    ShapeOf,
    SlotLoad,
    SlotRef,
    Slots,
    SlotSet,
    Stmt,
    SymbolDecl,
    SymbolKind,
    SymbolRef,
    TaskAxis,
    TaskOrdinal,
    TaskSite,
    TensorDecl,
    TensorKind,
    ViewKind,
    While,
)
from pto_wsp.ir.parse_tokens import MAX_BLOCKS, MAX_BRACKETS, Tokens
from pto_wsp.ir.text import (
    KEYWORDS,
    NOT_PRECEDENCE,
    ONE,
    PRECEDENCE,
    given_params,
)
from pto_wsp.srcloc import SrcLoc
from pto_wsp.tokens import fail

_INFIX = {op.value: (op, level) for op, level in PRECEDENCE.items()}
_FUNCTIONS = {"min": BinaryOp.MIN, "max": BinaryOp.MAX}
_TENSOR_KINDS = tuple(kind.value for kind in TensorKind)
_CALLS = (
    *("column", "slot", "var", "select", "reduce", "search"),
    *("task", "task_site", "task_ordinal"),
)


def parse(text: str, *, file: str = "<text>") -> Module:
    """The module that `to_text` printed. `file` is what errors call the text."""
    return _Parser(text, file).module()


def _float_of(bits: int) -> float:
    return struct.unpack("<d", bits.to_bytes(8, "little"))[0]


class _Parser(Tokens):
    """Recursive descent; `scope` holds the variables of the loops around the current place."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.scope: list[str] = []
        self.kernels: dict[str, KernelDecl] = {}

    # --- module and declarations ---

    def module(self) -> Module:
        self.expect("module")
        name = self.name()
        symbols: list[SymbolDecl] = []
        tensors: list[TensorDecl] = []
        kernels: list[KernelDecl] = []
        while not self.accept("body"):
            if self.accept("symbol"):
                symbols.append(self.symbol())
            elif self.at(*_TENSOR_KINDS):
                tensors.append(self.tensor(TensorKind(self.take().text)))
            elif self.accept("kernel"):
                kernels.append(self.kernel())
            else:
                self.expected("a declaration or 'body'")
        self.kernels = {k.name: k for k in kernels}
        body = self.block()
        schedule = self.schedule() if self.accept("schedule") else ()
        if self.next.kind != "end":
            self.expected("the end of the text")
        return Module(name, tuple(symbols), tuple(tensors), tuple(kernels), body, schedule)

    def symbol(self) -> SymbolDecl:
        name = self.name()
        self.expect(":")
        kind = self.word(SymbolKind)
        has_dtype = self.next.kind == "word" and self.next.text not in KEYWORDS
        dtype = self.dtype() if has_dtype else DType.I64
        rank = self.rank() if self.at("[") else 1
        default = self.number() if self.accept("=") else None
        return SymbolDecl(name, kind, dtype, default, self.loc(), rank)

    def number(self) -> int | float:
        return _float_of(self.bits()) if self.accept("float") else self.integer()

    def bits(self) -> int:
        """The bits of a floating-point constant, behind `float`."""
        self.expect("(")
        token = self.next
        bits = self.integer()
        if not 0 <= bits < 1 << 64:
            fail(f"{bits} are not 64 bits", token.loc)
        self.expect(")")
        return bits

    def tensor(self, kind: TensorKind) -> TensorDecl:
        name = self.name()
        self.expect(":")
        dtype, rank = self.dtype(), self.rank()
        shape = self.listed("(", self.expr, ")") if self.accept("of") else ()
        fixed = self.listed("(", self.size, ")") if self.accept("fixed") else ()
        pages = self.pages() if self.accept("in") else None
        slots = self.slots() if self.accept("depth") else None
        location = self.word(Location) if self.accept("at") else Location.Global
        layout = self.layout()
        loc = self.loc()
        return TensorDecl(
            *(name, dtype, rank, loc, kind, shape, pages, location, layout, slots, fixed)
        )

    def size(self) -> int | None:
        return None if self.accept("none") else self.integer()

    def slots(self) -> Slots:
        depth = self.integer()
        initial = self.integer() if self.accept("initial") else 0
        return Slots(depth, initial, self.integer() if self.accept("latency") else 0)

    def layout(self) -> TensorLayout | None:
        if not self.accept("layout"):
            return None
        token = self.next
        try:
            dims = self.listed("[", self.layout_dim, "]")
            if not self.accept("in"):
                return TensorLayout(dims)
            order = self.word(MemOrder)
            strided = order is MemOrder.STRIDED
            strides = self.listed("(", self.integer, ")") if strided else ()
            return TensorLayout(dims, MemLayout(order, strides))
        except TypeCheckError as error:
            fail(f"{error.message}: {error.why}", token.loc, error.fix)

    def layout_dim(self) -> LayoutDim:
        if self.accept("R"):
            return TensorReplicate()
        if not self.accept("S"):
            self.expected("'R' or 'S'")
        self.expect("(")
        axis = self.integer()
        self.expect(")")
        return TensorShard(axis)

    def pages(self) -> Pages:
        self.expect("(")
        pool = self.name()
        self.expect(",")
        table = self.name()
        self.expect(",")
        page = self.size()
        self.expect(")")
        return Pages(pool, table, page)

    def rank(self) -> int:
        """`[:, :]`, or the number itself."""
        if self.peek(1) in (":", "]"):
            return len(self.listed("[", lambda: self.expect(":"), "]"))
        self.expect("[")
        rank = self.integer()
        self.expect("]")
        return rank

    def kernel(self) -> KernelDecl:
        name = self.name()
        params = self.listed("(", self.param, ")")
        unit = self.word(ExecUnit) if self.accept("on") else ExecUnit.ANY
        form = self.word(BodyForm)
        if not self.accept("{"):
            return KernelDecl(name, params, form, self.strings(), (), self.loc(), unit)
        includes: list[str] = []
        while self.accept("include"):
            includes.append(self.string())
        source = self.strings()
        self.expect("}")
        return KernelDecl(name, params, form, source, tuple(includes), self.loc(), unit)

    def param(self) -> AnyParam:
        name = self.name()
        self.expect(":")
        if self.accept("scalar"):
            return ScalarDecl(name, self.dtype())
        if self.accept("constexpr"):
            dtype = self.dtype()
            self.expect("=")
            return ConstexprDecl(name, dtype, self.number())
        mode = self.word(Mode)
        view = ViewKind(self.take().text) if self.at("paged", "token") else ViewKind.STRIDED
        dtype, rank = self.dtype(), self.rank()
        shape = self.listed("(", self.integer, ")") if self.accept("of") else None
        location = self.word(Location) if self.accept("at") else None
        return ParamDecl(name, mode, dtype, rank, shape, view, location)

    def schedule(self) -> tuple[Directive, ...]:
        self.expect("{")
        directives: list[Directive] = []
        while not self.accept("}"):
            name = self.name()
            args = self.listed("(", self.directive_arg, ")")
            directives.append(Directive(name, args, self.loc()))
        return tuple(directives)

    def directive_arg(self) -> DirectiveArg:
        if self.accept("none"):
            return None
        if self.accept("key"):
            return self.expr()
        return self.string() if self.next.kind == "string" else self.integer()

    # --- statements ---

    def block(self) -> Body:
        self.blocks_open = self.deeper(self.blocks_open, MAX_BLOCKS)
        self.expect("{")
        body: list[Stmt] = []
        while not self.accept("}"):
            body.append(self.stmt())
        self.blocks_open -= 1
        return tuple(body)

    def stmt(self) -> Stmt:
        if self.accept("combine"):
            loc, branches = self.blocks("and")
            return Combine(branches, loc)
        if self.at("parallel", "sequential"):
            order = Order(self.take().text)
            if order is Order.PARALLEL or self.peek(1) == "in":
                return self.loop(order)
            loc, steps = self.blocks("then")
            return Sequential(steps, loc)
        if self.accept("when"):
            condition, loc = self.expr(), self.loc()
            then = self.block()
            return Cond(condition, then, self.block() if self.accept("otherwise") else (), loc)
        if self.accept("while"):
            return self.repeat()
        if self.accept("set"):
            slot = self.assigned()
            return SlotSet(slot, self.expr(), self.loc())
        if self.accept("load"):
            slot = self.assigned()
            return SlotLoad(slot, self.region(self.name()), self.loc())
        if self.accept("alloc"):
            name = self.name()
            return Alloc(name, self.listed("(", self.expr, ")"), self.loc())
        return self.channel_stmt()

    def channel_stmt(self) -> Stmt:
        if self.accept("send"):
            channel, loc = self.name(), self.loc()
            return Send(channel, self.block(), loc)
        if self.accept("consume"):
            channel = self.name()
            self.expect("as")
            var, loc = self.name(), self.loc()
            self.scope.append(var)
            body = self.block()
            self.scope.pop()
            return Consume(var, channel, body, loc)
        if self.accept("receive"):
            return Receive(self.name(), self.loc())
        if self.accept("close"):
            return Close(self.name(), self.loc())
        if self.accept("network"):
            return self.network()
        return self.call()

    def network(self) -> Network:
        loc = self.loc()
        self.blocks_open = self.deeper(self.blocks_open, MAX_BLOCKS)
        self.expect("{")
        processes: list[Process] = []
        while not self.accept("}"):
            self.expect("process")
            name = self.name()
            replicated = self.accept("each")
            at = self.loc()
            processes.append(Process(name, self.block(), replicated, at))
        self.blocks_open -= 1
        return Network(tuple(processes), loc)

    def assigned(self) -> str:
        name = self.name()
        self.expect("=")
        return name

    def repeat(self) -> While:
        var = self.name()
        self.expect("in")
        axis = self.name()
        self.expect(":")
        self.scope.append(var)
        condition = self.expr()
        self.scope.pop()
        self.expect("limit")
        limit, loc = self.expr(), self.loc()
        self.scope.append(var)
        body = self.block()
        self.scope.pop()
        return While(var, axis, condition, limit, body, loc)

    def loop(self, order: Order) -> Loop:
        var = self.name()
        self.expect("in")
        axis = self.name()
        self.expect(":")
        kind = self.word(AxisKind)
        lengths = parent = indices = None
        # Behind `ragged` come either its names or a start that may begin with a bracket; only the
        # names have a comma behind the first word.
        if self.at("(") and self.peek(2) == ",":
            self.take()
            lengths = self.optional_name()
            self.expect(",")
            parent = self.optional_name()
            indices = self.optional_name() if self.accept(",") else None
            self.expect(")")
        tile = self.expr() if self.accept("tile") else None
        padded = self.accept("padded")
        start, extent = self.span()
        loc = self.loc()
        self.scope.append(var)
        body = self.block()
        self.scope.pop()
        return Loop(
            var, axis, kind, order, start, extent, body, lengths, parent, loc, indices, tile, padded
        )

    def blocks(self, link: str) -> tuple[SrcLoc | None, tuple[Body, ...]]:
        if self.accept("none"):
            return self.loc(), ()
        loc = self.loc()
        bodies = [self.block()]
        while self.accept(link):
            bodies.append(self.block())
        return loc, tuple(bodies)

    def call(self) -> Call:
        if self.next.kind not in ("word", "string"):
            self.expected("a statement or '}'")
        label = None
        if self.accept("label"):
            label = self.name()
            self.expect(":")
        kernel = self.name()
        indices = self.listed("[", self.expr, "]") if self.at("[") else ()
        declared = self.kernels.get(kernel)
        params = iter(given_params(declared) if declared else ())
        args = self.listed("(", lambda: self.arg(next(params, None)), ")")
        after: list[After] = []
        while self.accept("after"):
            name = self.name()
            after.append(After(name, self.listed("[", self.expr, "]") if self.at("[") else ()))
        fields = self.listed("(", self.field, ")") if self.accept("fields") else ()
        stage = self.name() if self.accept("stage") else None
        return Call(kernel, indices, args, self.loc(), label, tuple(after), fields, stage)

    def field(self) -> tuple[str, Expr]:
        name = self.name()
        self.expect("=")
        return name, self.expr()

    def arg(self, param: ParamDecl | ScalarDecl | None) -> Argument:
        """A region or a value, after the name of its parameter if the text gives one."""
        if self.accept("value"):
            return self.expr()
        token = self.next
        name = self.name()
        if not self.accept("="):
            return self.region(name)
        if param is None or param.name != name:
            want = "no further one" if param is None else f"'{param.name}'"
            fail(f"argument '{name}' where the kernel has {want}", token.loc)
        return self.expr() if self.accept("value") else self.region(self.name())

    def region(self, tensor: str) -> Region:
        return Region(tensor, self.listed("[", self.dim, "]"), self.layout())

    def dim(self) -> DimSlice:
        dropped = self.accept("drop")
        start = self.expr()
        if not dropped and not self.at(":"):
            return DimSlice(start, ONE, ONE, dropped=True)
        extent = self.extent()
        step = self.expr() if self.accept(":") else ONE
        return DimSlice(start, extent, step, dropped)

    def span(self) -> tuple[Expr, Expr]:
        return self.expr(), self.extent()

    def extent(self) -> Expr:
        self.expect(":")
        self.expect("+")
        return self.expr()

    # --- expressions ---

    def expr(self, lowest: int = 1) -> Expr:
        """Operators that bind at least as tightly as `lowest`, grouped to the left."""
        self.brackets_open = self.deeper(self.brackets_open, MAX_BRACKETS)
        lhs = self.prefix()
        self.brackets_open -= 1
        while self.at(*_INFIX):
            op, level = _INFIX[self.next.text]
            if level < lowest:
                break
            self.take()
            lhs = Binary(op, lhs, self.expr(level + 1))
        return lhs

    def prefix(self) -> Expr:
        return Not(self.expr(NOT_PRECEDENCE)) if self.accept("not") else self.atom()

    def atom(self) -> Expr:
        if self.next.kind == "integer" or self.at("-"):
            return Const(self.integer())
        if self.accept("float"):
            return FloatConst(self.bits())
        if self.at(*_CALLS):
            return self.call_form(self.take().text)
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if self.at(*_FUNCTIONS):
            return self.function(_FUNCTIONS[self.take().text])
        if self.accept("?"):
            return LoopVar(self.name())
        if self.accept("$"):
            return SymbolRef(self.name())
        if self.next.kind not in ("word", "string"):
            self.expected("an expression")
        return self.named(self.name())

    def call_form(self, word: str) -> Expr:
        self.expect("(")
        result = self.call_inside(word)
        self.expect(")")
        return result

    def call_inside(self, word: str) -> Expr:
        match word:
            case "column":
                return Column(self.name())
            case "slot":
                return SlotRef(self.name())
            case "var":
                return BoundVar(self.integer())
            case "task":
                axis = self.name()
                return TaskAxis(axis, self.integer() if self.accept(",") else None)
            case "task_site":
                return TaskSite()
            case "task_ordinal":
                return TaskOrdinal()
            case "select":
                return Select(*self.three())
            case "reduce":
                op = self.word(ReduceOp)
                self.expect(",")
                level = self.integer()
                self.expect(",")
                return Reduce(op, level, *self.three())
            case _:
                level = self.integer()
                self.expect(",")
                return Search(level, *self.three())

    def three(self) -> tuple[Expr, Expr, Expr]:
        first = self.expr()
        self.expect(",")
        second = self.expr()
        self.expect(",")
        return first, second, self.expr()

    def function(self, op: BinaryOp) -> Expr:
        self.expect("(")
        lhs = self.expr()
        self.expect(",")
        rhs = self.expr()
        self.expect(")")
        return Binary(op, lhs, rhs)

    def named(self, name: str) -> Expr:
        if self.accept("["):
            index = self.expr()
            column = self.expr() if self.accept(",") else None
            self.expect("]")
            return ArrayLoad(name, index, column)
        if self.accept("."):
            self.expect("shape")
            self.expect("[")
            dim = self.integer()
            self.expect("]")
            return ShapeOf(name, dim)
        return LoopVar(name) if name in self.scope else SymbolRef(name)
