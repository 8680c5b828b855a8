"""What a call must fit, and the whole text of the error where it does not: arity, dtypes of scalars
and tiles, ranks, directions, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    PtoError,
    Scalar,
    Tensor,
    Tile,
    Token,
    TypeCheckError,
    kernel,
    workload,
)

X = Tensor(data=np.zeros((8, 4), np.float32))
H = Tensor(data=np.zeros((8, 4), np.float16))
G = Token(8)


@kernel
def put(x: Out[Tensor], n: Scalar[DType.I8], f: Scalar[DType.F32], b: Scalar[DType.BOOL]): ...


@kernel
def tile(x: InOut[Tile[2, 4, DType.F32]]): ...


@kernel
def copy(x: In[Tensor], y: Out[Tensor]): ...


def full_text(error: PtoError, line: int) -> str:
    """The text of an error without its place, which must be that line."""
    assert error.loc is not None
    assert (error.loc.file, error.loc.line) == (__file__, line)
    text = str(error)
    assert error.loc.render() in text
    return text.replace(error.loc.render() + "\n", "")


CALLS: list[tuple[Callable[[Any], Any], type[CompileError], str]] = [
    (
        lambda i: copy(X[i]),
        TypeCheckError,
        "[PTO204] kernel copy is called with no y\n"
        "  why: it has no default\n"
        "  fix: the parameters are (x, y)",
    ),
    (
        lambda i: copy(X[i], X[i], X[i]),
        TypeCheckError,
        "[PTO204] kernel copy is called with 3 positional arguments\n"
        "  why: it has 2\n"
        "  fix: the parameters are (x, y)",
    ),
    (
        lambda i: put(X[i], 0.5, 1, True),
        TypeCheckError,
        "[PTO205] kernel put: n is float\n"
        "  why: it is Scalar[i8]\n"
        "  fix: pass an integer or a symbolic integer",
    ),
    (
        lambda i: put(X[i], 128, 1, True),
        TypeCheckError,
        "[PTO205] kernel put: n is 128\n"
        "  why: i8 holds -128 to 127\n"
        "  fix: pass a smaller number, or use a larger type",
    ),
    (
        lambda i: put(X[i], i, i, True),
        TypeCheckError,
        "[PTO205] kernel put: f is an integer\n"
        "  why: it is Scalar[f32]\n"
        "  fix: pass a Python number, or a Scalar(...) argument of the workload",
    ),
    (
        lambda i: put(X[i], i, 1.5, i),
        TypeCheckError,
        "[PTO205] kernel put: b is an integer\n"
        "  why: it is Scalar[bool]\n"
        "  fix: pass a bool or a condition",
    ),
    (
        lambda i: tile(H[i : i + 1]),
        TypeCheckError,
        "[PTO206] kernel tile: x is Tile[2, 4, f32], H is f16\n"
        "  why: a tile has one dtype\n"
        "  fix: pass a tensor of that dtype",
    ),
    (
        lambda i: tile(X[i]),
        TypeCheckError,
        "[PTO206] kernel tile: x is Tile[2, 4, f32], the region has rank 1\n"
        "  why: the ranks differ\n"
        "  fix: index so that the ranks are equal",
    ),
    (
        lambda i: tile(X[i : i + 3]),
        TypeCheckError,
        "[PTO206] kernel tile: x is Tile[2, 4, f32], the region has an extent of 3\n"
        "  why: a region must fit into its tile\n"
        "  fix: pass a smaller slice",
    ),
    (
        lambda i: copy(G[i], X[i]),
        TypeCheckError,
        "[PTO205] argument 'x' of kernel 'copy': 'G' is a token\n"
        "  why: tokens order tasks and have no data\n"
        "  fix: annotate x as In[Token], Out[Token] or InOut[Token] for tokens only",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), CALLS)
def test_calls(call: Callable[[Any], Any], kind: type[CompileError], text: str) -> None:
    @workload
    def work(rows: Any):
        for i in P(rows):
            call(i)

    with pytest.raises(kind) as raised:
        work(DenseDyn(4)).compile()
    assert type(raised.value) is kind
    assert full_text(raised.value, call.__code__.co_firstlineno) == text


def test_directions() -> None:
    def bare(x: Tensor): ...

    with pytest.raises(CompileError) as raised:
        kernel(bare)
    assert full_text(raised.value, bare.__code__.co_firstlineno) == (
        "[PTO202] kernel bare: parameter x is annotated Tensor\n"
        "  why: a parameter is a tensor or tile with a direction, a scalar, or a constant\n"
        "  fix: write `x: In[Tensor]` (or Out, InOut, Accum; or of Tile[16, 16, DType.F32]), "
        "Scalar[DType.F32] or Constexpr[int]"
    )

    array = np.zeros(4)
    array.flags.writeable = False
    Y = Tensor(data=array)
    assert Y.loc is not None

    @workload
    def work():
        copy(X[0], Y)

    program = work().compile()
    run = lambda: program.execute()  # noqa: E731  (its line is compared)
    with pytest.raises(ExecutionError) as refused:
        run()
    assert full_text(refused.value, run.__code__.co_firstlineno) == (
        "[PTO407] tensor 'Y' is read-only, but tasks write it\n"
        f"  note: declared at {Y.loc}\n"
        "  why: kernels write into the memory that is bound\n"
        "  fix: bind an array that may be written, or a copy of this one"
    )
