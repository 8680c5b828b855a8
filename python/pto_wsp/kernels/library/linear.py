"""Products, and what stands around them."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, Kernel, Out, Tensor, Tile, kernel, pto

F32 = DType.F32


@functools.cache
def gemm(rows: int, cols: int, depth: int = 256, out_dtype: DType = F32) -> Kernel:
    """`gemm(a, b, c)`: one tile of a product, from a strip of rows of `a` and one of columns of
    `b`, of any length; `depth` is how much of it is taken at a time."""
    tile = Tile[rows, cols, out_dtype]

    @kernel(body="tile")
    def gemm(a: In[Tensor], b: In[Tensor], c: Out[tile]):
        s = pto.carry(sum=pto.zeros((rows, cols), F32))
        for k in pto.for_range(0, a.shape[1], depth):
            left = pto.load(a[0:rows, k : k + depth])
            right = pto.load(b[k : k + depth, 0:cols])
            s.sum = pto.matmul_acc(s.sum, left, right)
        pto.store(c, pto.cast(s.sum, out_dtype))

    return gemm


@functools.cache
def silu_mul(rows: int, cols: int, dtype: DType = F32) -> Kernel:
    """`silu_mul(gate, up, out)`: silu(gate) * up, the middle of a gated MLP."""
    tile = Tile[rows, cols, dtype]

    @kernel
    def silu_mul(gate: In[tile], up: In[tile], out: Out[tile]):
        wide = pto.silu(pto.cast(gate, F32)) * pto.cast(up, F32)
        pto.store(out, pto.cast(wide, dtype))

    return silu_mul


@functools.cache
def dequantise(rows: int, cols: int, group: int, dtype: DType = F32) -> Kernel:
    """`dequantise(q, scale, zero, out)`: (q - zero) * scale of i8 numbers, with a scale and a zero
    for each row and each group of columns."""
    groups = cols // group
    if groups * group != cols:
        raise ValueError(f"{cols} columns are no whole number of groups of {group}")

    @kernel
    def dequantise(
        q: In[Tile[rows, cols, DType.I8]],
        scale: In[Tile[rows, groups, F32]],
        zero: In[Tile[rows, groups, F32]],
        out: Out[Tile[rows, cols, dtype]],
    ):
        for g in range(groups):
            first, last = g * group, (g + 1) * group
            number = pto.cast(pto.load(q[0:rows, first:last]), F32)
            shift = pto.load(zero[0:rows, g : g + 1])
            factor = pto.load(scale[0:rows, g : g + 1])
            pto.store(out[0:rows, first:last], pto.cast((number - shift) * factor, dtype))

    return dequantise
