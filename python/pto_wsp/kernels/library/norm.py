"""Kernels that bring rows to a common scale."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, Kernel, Out, Scalar, Tile, kernel, pto

F32 = DType.F32


@functools.cache
def softmax(rows: int, cols: int, dtype: DType = F32) -> Kernel:
    """`softmax(x, out)`: each row as shares of 1."""
    tile = Tile[rows, cols, dtype]

    @kernel
    def softmax(x: In[tile], out: Out[tile]):
        wide = pto.cast(x, F32)
        shares = pto.exp(wide - pto.row_max(wide))
        pto.store(out, pto.cast(shares * pto.recip(pto.row_sum(shares)), dtype))

    return softmax


@functools.cache
def rmsnorm(rows: int, cols: int, dtype: DType = F32) -> Kernel:
    """`rmsnorm(x, weight, out, eps)`: each row by the root of its mean square, times a weight for
    each column."""
    tile = Tile[rows, cols, dtype]
    row = Tile[1, cols, dtype]

    @kernel
    def rmsnorm(x: In[tile], weight: In[row], out: Out[tile], eps: Scalar[F32] = 1e-6):
        wide = pto.cast(x, F32)
        scale = pto.rsqrt(pto.row_mean(wide * wide) + eps)
        pto.store(out, pto.cast(wide * scale * pto.cast(weight, F32), dtype))

    return rmsnorm


@functools.cache
def layernorm(rows: int, cols: int, dtype: DType = F32) -> Kernel:
    """`layernorm(x, weight, bias, out, eps)`: each row less its mean, by its deviation."""
    tile = Tile[rows, cols, dtype]
    row = Tile[1, cols, dtype]

    @kernel
    def layernorm(
        x: In[tile], weight: In[row], bias: In[row], out: Out[tile], eps: Scalar[F32] = 1e-5
    ):
        wide = pto.cast(x, F32)
        centred = wide - pto.row_mean(wide)
        scale = pto.rsqrt(pto.row_mean(centred * centred) + eps)
        scaled = centred * scale * pto.cast(weight, F32) + pto.cast(bias, F32)
        pto.store(out, pto.cast(scaled, dtype))

    return layernorm
