"""Objects of the language that are not numbers refuse what Python would let one do with numbers.

Without this, `for i in rows` or `X[i] + 1` would end in a message about Python types that names
neither the reason nor the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError

ARITHMETIC = {
    "__add__": "+", "__radd__": "+", "__sub__": "-", "__rsub__": "-", "__mul__": "*",
    "__rmul__": "*", "__truediv__": "/", "__rtruediv__": "/", "__floordiv__": "//",
    "__rfloordiv__": "//", "__mod__": "%", "__rmod__": "%", "__neg__": "-",
}  # fmt: skip
UNTRACED_ARITHMETIC = {
    "__pow__": "**", "__rpow__": "**", "__matmul__": "@", "__rmatmul__": "@", "__and__": "&",
    "__rand__": "&", "__or__": "|", "__ror__": "|", "__xor__": "^", "__rxor__": "^",
    "__lshift__": "<<", "__rlshift__": "<<", "__rshift__": ">>", "__rrshift__": ">>",
    "__invert__": "~", "__abs__": "abs()", "__divmod__": "divmod()", "__rdivmod__": "divmod()",
    "__round__": "round()", "__floor__": "math.floor()", "__ceil__": "math.ceil()",
    "__trunc__": "math.trunc()",
}  # fmt: skip
COMPARISONS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
EQUALITY = {"__eq__": "==", "__ne__": "!="}
CONVERSIONS = {
    "__int__": "int()", "__index__": "range(), int() or the like",
    "__float__": "float()", "__complex__": "complex()",
    "__array__": "NumPy",
}  # fmt: skip
TRUTH = {"__bool__": "if, while, and, or, not"}
ITERATION = {"__iter__": "iteration", "__len__": "len()", "__contains__": "in"}
# All of it but ==, which objects that are looked up by identity keep.
COMPUTING = {
    **ARITHMETIC, **UNTRACED_ARITHMETIC, **COMPARISONS, **CONVERSIONS, **TRUTH, **ITERATION,
}  # fmt: skip

Class = TypeVar("Class", bound=type)


def refuse(
    *tables: dict[str, str],
    code: Code,
    message: str,
    why: str,
    fix: str,
    error: type[CompileError] = CompileError,
) -> Callable[[Class], Class]:
    """A class decorator: each method in the tables raises. `{op}` in the message names the
    operation."""

    def decorate(cls: Class) -> Class:
        for table in tables:
            for method, spelling in table.items():
                setattr(cls, method, _refusing(spelling, code, message, why, fix, error))
        return cls

    return decorate


def _refusing(
    spelling: str, code: Code, message: str, why: str, fix: str, error: type[CompileError]
) -> Callable[..., NoReturn]:
    def refusing(self: object, *operands: object) -> NoReturn:
        del self, operands
        raise error(code, message.format(op=spelling), loc=srcloc.here(), why=why, fix=fix)

    return refusing
