"""Products, and what stands around them."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, InOut, Kernel, Out, Tensor, Tile, kernel, pto

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


def _times_rows(x, weight, rows: int, cols: int, depth: int, first):
    """first + x @ weight.T, `depth` of both at a time."""
    s = pto.carry(sum=first)
    for k in pto.for_range(0, x.shape[1], depth):
        left = pto.load(x[0:rows, k : k + depth])
        right = pto.load(weight[0:cols, k : k + depth])
        s.sum = pto.matmul_acc(s.sum, left, right.T)
    return s.sum


@functools.cache
def linear(
    rows: int, cols: int, depth: int = 512, dtype: DType = F32, *, add: bool = False
) -> Kernel:
    """`linear(x, weight, out)`: one tile of x @ weight.T, with weights `[out, in]` as models store
    them, so that a tile takes rows of them that lie next to each other. `add` keeps what `out` held
    and adds to it, as a residual wants it."""
    tile = Tile[rows, cols, dtype]

    @kernel(body="tile")
    def linear(x: In[Tensor], weight: In[Tensor], out: Out[tile]):
        sum = _times_rows(x, weight, rows, cols, depth, pto.zeros((rows, cols), F32))
        pto.store(out, pto.cast(sum, dtype))

    @kernel(body="tile")
    def add_linear(x: In[Tensor], weight: In[Tensor], out: InOut[tile]):
        before = pto.pad(pto.cast(out, F32), 0.0)
        sum = _times_rows(x, weight, rows, cols, depth, before)
        pto.store(out, pto.cast(sum, dtype))

    return add_linear if add else linear


@functools.cache
def gated_linear(rows: int, cols: int, depth: int = 512, dtype: DType = F32) -> Kernel:
    """`gated_linear(x, gate, up, out)`: silu(x @ gate.T) * (x @ up.T), weights as in `linear`: the
    first half of a gated MLP."""
    tile = Tile[rows, cols, dtype]

    @kernel(body="tile")
    def gated_linear(x: In[Tensor], gate: In[Tensor], up: In[Tensor], out: Out[tile]):
        nothing = pto.zeros((rows, cols), F32)
        opened = pto.silu(_times_rows(x, gate, rows, cols, depth, nothing))
        passed = _times_rows(x, up, rows, cols, depth, nothing)
        pto.store(out, pto.cast(opened * passed, dtype))

    return gated_linear


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
