"""The operations of tile kernels: the only list of them. Emitters, the NumPy meaning, the verifier
and the documentation are made from it or checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pto_wsp.dtypes import DType


class Group(Enum):
    """What decides the type of a result, and how an emitter goes about it."""

    CONSTANT = "constant"  # a scalar that is written in the kernel
    MEMORY = "memory"  # reads or writes a parameter
    MAKE = "make"  # a tile from scalars
    UNARY = "unary"  # elementwise, the type of its operand
    BINARY = "binary"  # elementwise, with broadcasting
    COMPARE = "compare"  # elementwise, bool
    SELECT = "select"  # elementwise: where
    CAST = "cast"  # elementwise, another dtype
    REDUCE = "reduce"  # along one axis, which stays with extent 1
    MOVE = "move"  # elements of tiles in another place
    MATMUL = "matmul"
    SORT = "sort"
    CONTROL = "control"  # loops and conditions


class Types(Enum):
    """The dtypes that an operation takes."""

    ANY = "any"
    NUMBER = "numbers"  # all but bool
    FLOAT = "floats"
    INTEGER = "integers"
    LOGIC = "integers and bool"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One operation. `operands` counts values; -1: any number."""

    group: Group
    operands: int
    types: Types
    doc: str


class Op(Enum):
    """The value is the spelling in the text form."""

    CONST = "const"
    LOAD = "load"
    STORE = "store"
    EXTENT = "extent"
    GATHER = "gather"
    SCATTER = "scatter"
    FULL = "full"
    ARANGE = "arange"
    NEG = "neg"
    ABS = "abs"
    EXP = "exp"
    EXP2 = "exp2"
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIP = "recip"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    ERF = "erf"
    SIN = "sin"
    COS = "cos"
    RELU = "relu"
    GELU = "gelu"
    SILU = "silu"
    FLOOR = "floor"
    CEIL = "ceil"
    NOT = "not"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOORDIV = "floordiv"
    MOD = "mod"
    MAX = "max"
    MIN = "min"
    POW = "pow"
    AND = "and"
    OR = "or"
    XOR = "xor"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    WHERE = "where"
    CAST = "cast"
    SUM_OF = "sum_of"
    MAX_OF = "max_of"
    MIN_OF = "min_of"
    MEAN_OF = "mean_of"
    ARGMAX_OF = "argmax_of"
    PAD = "pad"
    RESHAPE = "reshape"
    TRANSPOSE = "transpose"
    SLICE = "slice"
    CONCAT = "concat"
    ITEM = "item"
    MATMUL = "matmul"
    MATMUL_ACC = "matmul_acc"
    TOPK = "topk"
    SORT = "sort"
    FOR = "for"
    WHEN = "when"


def _info(group: Group, operands: int, types: Types, doc: str) -> OpInfo:
    return OpInfo(group, operands, types, doc)


_G, _T = Group, Types

OPS: dict[Op, OpInfo] = {
    Op.CONST: _info(_G.CONSTANT, 0, _T.ANY, "a scalar; attribute value"),
    Op.LOAD: _info(
        _G.MEMORY,
        -1,
        _T.ANY,
        "a tile of a parameter: the parameter, then an offset for each of its dimensions; "
        "attribute sizes holds the extent of the tile in each dimension, or 0 where the offset "
        "picks one element; a scalar if all do. What lies outside of the parameter is not part of "
        "the tile. The task fails on a negative offset, and if a picked element or the only "
        "element of an extent of 1 does not exist",
    ),
    Op.STORE: _info(
        _G.MEMORY,
        -1,
        _T.ANY,
        "writes a tile, or a scalar everywhere: parameter, value, offsets; sizes like load. What "
        "lies outside of the parameter is not written",
    ),
    Op.EXTENT: _info(_G.MEMORY, 1, _T.ANY, "the extent of a parameter in dimension dim, i64"),
    Op.GATHER: _info(
        _G.MEMORY,
        2,
        _T.ANY,
        "rows of a rank-2 parameter or tile, by a column of integers; a row that does not exist is "
        "zeros. Attribute cols: how many columns, from the first on",
    ),
    Op.SCATTER: _info(
        _G.MEMORY,
        3,
        _T.ANY,
        "writes the rows of a tile into a rank-2 parameter: parameter, column of integers, tile; "
        "of equal row numbers the last counts, rows that do not exist are left out",
    ),
    Op.FULL: _info(_G.MAKE, 1, _T.ANY, "every element is the scalar; attribute shape"),
    Op.ARANGE: _info(
        _G.MAKE, 1, _T.NUMBER, "the scalar + the index along an axis; attributes shape and axis"
    ),
    Op.NEG: _info(_G.UNARY, 1, _T.NUMBER, "-x"),
    Op.ABS: _info(_G.UNARY, 1, _T.NUMBER, "|x|"),
    Op.EXP: _info(_G.UNARY, 1, _T.FLOAT, "e to the power of x"),
    Op.EXP2: _info(_G.UNARY, 1, _T.FLOAT, "2 to the power of x"),
    Op.LOG: _info(_G.UNARY, 1, _T.FLOAT, "natural logarithm"),
    Op.SQRT: _info(_G.UNARY, 1, _T.FLOAT, "square root"),
    Op.RSQRT: _info(_G.UNARY, 1, _T.FLOAT, "1 / square root"),
    Op.RECIP: _info(_G.UNARY, 1, _T.FLOAT, "1 / x"),
    Op.TANH: _info(_G.UNARY, 1, _T.FLOAT, "hyperbolic tangent"),
    Op.SIGMOID: _info(_G.UNARY, 1, _T.FLOAT, "1 / (1 + e to the power of -x)"),
    Op.ERF: _info(_G.UNARY, 1, _T.FLOAT, "error function"),
    Op.SIN: _info(_G.UNARY, 1, _T.FLOAT, "sine of radians"),
    Op.COS: _info(_G.UNARY, 1, _T.FLOAT, "cosine of radians"),
    Op.RELU: _info(_G.UNARY, 1, _T.NUMBER, "max(x, 0)"),
    Op.GELU: _info(_G.UNARY, 1, _T.FLOAT, "x * (1 + erf(x / sqrt(2))) / 2"),
    Op.SILU: _info(_G.UNARY, 1, _T.FLOAT, "x * sigmoid(x)"),
    Op.FLOOR: _info(_G.UNARY, 1, _T.FLOAT, "the largest whole number not above x"),
    Op.CEIL: _info(_G.UNARY, 1, _T.FLOAT, "the smallest whole number not below x"),
    Op.NOT: _info(_G.UNARY, 1, _T.LOGIC, "the other truth value, or every bit turned"),
    Op.ADD: _info(_G.BINARY, 2, _T.NUMBER, "a + b; integers wrap around"),
    Op.SUB: _info(_G.BINARY, 2, _T.NUMBER, "a - b; integers wrap around"),
    Op.MUL: _info(_G.BINARY, 2, _T.NUMBER, "a * b; integers wrap around"),
    Op.DIV: _info(_G.BINARY, 2, _T.FLOAT, "a / b"),
    Op.FLOORDIV: _info(_G.BINARY, 2, _T.INTEGER, "a / b, rounded down; 0 where b is 0"),
    Op.MOD: _info(
        _G.BINARY, 2, _T.INTEGER, "what floordiv leaves, with the sign of b; 0 where b is 0"
    ),
    Op.MAX: _info(_G.BINARY, 2, _T.NUMBER, "the larger one; NaN where one is NaN"),
    Op.MIN: _info(_G.BINARY, 2, _T.NUMBER, "the smaller one; NaN where one is NaN"),
    Op.POW: _info(_G.BINARY, 2, _T.FLOAT, "a to the power of b"),
    Op.AND: _info(_G.BINARY, 2, _T.LOGIC, "both, or bits of both"),
    Op.OR: _info(_G.BINARY, 2, _T.LOGIC, "either, or bits of either"),
    Op.XOR: _info(_G.BINARY, 2, _T.LOGIC, "one of them, or bits of one of them"),
    Op.EQ: _info(_G.COMPARE, 2, _T.ANY, "a == b"),
    Op.NE: _info(_G.COMPARE, 2, _T.ANY, "a != b"),
    Op.LT: _info(_G.COMPARE, 2, _T.NUMBER, "a < b"),
    Op.LE: _info(_G.COMPARE, 2, _T.NUMBER, "a <= b"),
    Op.GT: _info(_G.COMPARE, 2, _T.NUMBER, "a > b"),
    Op.GE: _info(_G.COMPARE, 2, _T.NUMBER, "a >= b"),
    Op.WHERE: _info(_G.SELECT, 3, _T.ANY, "a where the mask holds, else b: mask, a, b"),
    Op.CAST: _info(
        _G.CAST,
        1,
        _T.ANY,
        "attribute dtype: to a float rounds to nearest even; from a float to an integer rounds as "
        "attribute rounding says, stops at the ends of the range, and NaN is 0; between integers "
        "keeps the low bits; to bool is x != 0",
    ),
    Op.SUM_OF: _info(
        _G.REDUCE, 1, _T.NUMBER, "sum, 0 of nothing; attribute axis: 1 within rows, 0 down columns"
    ),
    Op.MAX_OF: _info(
        _G.REDUCE, 1, _T.NUMBER, "largest element; NaN if there is one; of nothing the least value"
    ),
    Op.MIN_OF: _info(
        _G.REDUCE, 1, _T.NUMBER, "smallest element; NaN if there is one; of nothing the largest"
    ),
    Op.MEAN_OF: _info(_G.REDUCE, 1, _T.FLOAT, "sum / number of elements; of nothing NaN"),
    Op.ARGMAX_OF: _info(
        _G.REDUCE,
        1,
        _T.NUMBER,
        "where the largest element is, i32: the first, or the first NaN; 0 of nothing",
    ),
    Op.PAD: _info(
        _G.MOVE, 2, _T.ANY, "the whole tile: the scalar where a partial tile has nothing"
    ),
    Op.RESHAPE: _info(_G.MOVE, 1, _T.ANY, "the same elements row by row; attribute shape"),
    Op.TRANSPOSE: _info(_G.MOVE, 1, _T.ANY, "rows become columns"),
    Op.SLICE: _info(
        _G.MOVE,
        3,
        _T.ANY,
        "a part of a tile: tile, first row, first column; attribute shape. The task fails if the "
        "part reaches beyond the type of the tile, or if an extent of 1 has nothing",
    ),
    Op.CONCAT: _info(_G.MOVE, -1, _T.ANY, "tiles behind each other; attribute axis"),
    Op.ITEM: _info(
        _G.MOVE, 3, _T.ANY, "one element, which must exist, as a scalar: tile, row, column"
    ),
    Op.MATMUL: _info(
        _G.MATMUL,
        2,
        _T.NUMBER,
        "product, over the inner elements that both have; f16 and bf16 add up in f32 and give f32, "
        "i8 and u8 in i32 and give i32",
    ),
    Op.MATMUL_ACC: _info(_G.MATMUL, 3, _T.NUMBER, "first operand + the product of the others"),
    Op.TOPK: _info(
        _G.SORT,
        1,
        _T.NUMBER,
        "of each row the largest elements, in order, and where they were, i32; attribute k. Of "
        "equal ones the first goes first; NaN counts as the largest",
    ),
    Op.SORT: _info(
        _G.SORT,
        1,
        _T.NUMBER,
        "each row in order and where the elements were, i32; attribute descending. Equal ones keep "
        "their order; NaN counts as the largest",
    ),
    Op.FOR: _info(
        _G.CONTROL,
        -1,
        _T.ANY,
        "start, stop, step (i64) and what the first iteration is given; the task fails on a step "
        "below 1. A carried tile may be partial in its block parameter and whole where it begins",
    ),
    Op.WHEN: _info(_G.CONTROL, 1, _T.BOOL, "one of two branches, by a scalar"),
}
assert set(OPS) == set(Op)

# The attributes of each operation, all of them required, with what they hold.
ATTRIBUTES: dict[Op, dict[str, type | tuple[type, ...]]] = {
    Op.CONST: {"value": (int, float, bool), "dtype": str},
    Op.LOAD: {"sizes": tuple},
    Op.STORE: {"sizes": tuple},
    Op.EXTENT: {"dim": int},
    Op.GATHER: {"cols": int},
    Op.FULL: {"shape": tuple},
    Op.ARANGE: {"shape": tuple, "axis": int},
    Op.CAST: {"dtype": str, "rounding": str},
    Op.SUM_OF: {"axis": int},
    Op.MAX_OF: {"axis": int},
    Op.MIN_OF: {"axis": int},
    Op.MEAN_OF: {"axis": int},
    Op.ARGMAX_OF: {"axis": int},
    Op.RESHAPE: {"shape": tuple},
    Op.SLICE: {"shape": tuple},
    Op.CONCAT: {"axis": int},
    Op.TOPK: {"k": int},
    Op.SORT: {"descending": bool},
}
ROUNDINGS = ("nearest", "zero", "floor", "ceil")

FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
INTEGERS = frozenset(set(DType) - FLOATS - {DType.BOOL})
DTYPES: dict[Types, frozenset[DType]] = {
    Types.ANY: frozenset(DType),
    Types.NUMBER: FLOATS | INTEGERS,
    Types.FLOAT: FLOATS,
    Types.INTEGER: INTEGERS,
    Types.LOGIC: INTEGERS | {DType.BOOL},
    Types.BOOL: frozenset({DType.BOOL}),
}
# What products add up in, and give; every other dtype stays what it is.
PRODUCT = {
    DType.F16: DType.F32,
    DType.BF16: DType.F32,
    DType.I8: DType.I32,
    DType.U8: DType.I32,
}
