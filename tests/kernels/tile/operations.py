"""How a kernel spells the operations on elements, and what NumPy computes for each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pto_wsp.kernels import pto
from pto_wsp.kernels.tile_ir import Op

Array = np.ndarray[Any, Any]
ERF = np.vectorize(math.erf, otypes=[np.float64])


def _power(a: Array, b: Array) -> Array:
    """Infinities by float64: the function for long double of some C libraries is wrong there."""
    plain = np.isfinite(a) & np.isfinite(b)
    return np.where(plain, np.power(a, b), np.power(a.astype("f8"), b.astype("f8")))


UNARY: dict[Op, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    Op.NEG: (lambda x: -x, np.negative),
    Op.ABS: (pto.abs, np.abs),
    Op.EXP: (pto.exp, np.exp),
    Op.EXP2: (pto.exp2, np.exp2),
    Op.LOG: (pto.log, np.log),
    Op.SQRT: (pto.sqrt, np.sqrt),
    Op.RSQRT: (pto.rsqrt, lambda x: 1 / np.sqrt(x)),
    Op.RECIP: (pto.recip, lambda x: 1 / x),
    Op.TANH: (pto.tanh, np.tanh),
    Op.SIGMOID: (pto.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    Op.ERF: (pto.erf, ERF),
    Op.SIN: (pto.sin, np.sin),
    Op.COS: (pto.cos, np.cos),
    Op.RELU: (pto.relu, lambda x: np.maximum(x, 0)),
    Op.GELU: (pto.gelu, lambda x: x * (1 + ERF(x / math.sqrt(2))) / 2),
    Op.SILU: (pto.silu, lambda x: x * (1 / (1 + np.exp(-x)))),
    Op.FLOOR: (pto.floor, np.floor),
    Op.CEIL: (pto.ceil, np.ceil),
    Op.NOT: (lambda x: ~x, np.invert),
}
BINARY: dict[Op, tuple[Callable[..., Any], Callable[[Array, Array], Array]]] = {
    Op.ADD: (lambda a, b: a + b, np.add),
    Op.SUB: (lambda a, b: a - b, np.subtract),
    Op.MUL: (lambda a, b: a * b, np.multiply),
    Op.DIV: (lambda a, b: a / b, np.divide),
    Op.FLOORDIV: (
        lambda a, b: a // b,
        lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b)),
    ),
    Op.MOD: (lambda a, b: a % b, lambda a, b: np.where(b == 0, 0, a % np.where(b == 0, 1, b))),
    Op.MAX: (pto.maximum, np.maximum),
    Op.MIN: (pto.minimum, np.minimum),
    Op.POW: (pto.pow, _power),
    Op.AND: (lambda a, b: a & b, np.bitwise_and),
    Op.OR: (lambda a, b: a | b, np.bitwise_or),
    Op.XOR: (lambda a, b: a ^ b, np.bitwise_xor),
}
COMPARE: dict[Op, tuple[Callable[..., Any], Callable[[Array, Array], Array]]] = {
    Op.EQ: (lambda a, b: a == b, np.equal),
    Op.NE: (lambda a, b: a != b, np.not_equal),
    Op.LT: (lambda a, b: a < b, np.less),
    Op.LE: (lambda a, b: a <= b, np.less_equal),
    Op.GT: (lambda a, b: a > b, np.greater),
    Op.GE: (lambda a, b: a >= b, np.greater_equal),
}

REDUCTIONS: dict[Op, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    Op.SUM_OF: (pto.row_sum, pto.col_sum, np.sum),
    Op.MAX_OF: (pto.row_max, pto.col_max, np.max),
    Op.MIN_OF: (pto.row_min, pto.col_min, np.min),
    Op.MEAN_OF: (pto.row_mean, pto.col_mean, np.mean),
    Op.ARGMAX_OF: (pto.row_argmax, pto.col_argmax, np.argmax),
}
