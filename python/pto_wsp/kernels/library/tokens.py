"""Tokens: their rows, which one is next, and which experts they go to."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, Kernel, Out, Tensor, Tile, kernel, pto

F32 = DType.F32


@functools.cache
def topk_router(tokens: int, experts: int, k: int, dtype: DType = F32) -> Kernel:
    """`topk_router(logits, chosen, weights)`: the `k` best experts of each token, best first, and
    their shares of 1."""

    @kernel
    def topk_router(
        logits: In[Tile[tokens, experts, dtype]],
        chosen: Out[Tile[tokens, k, DType.I32]],
        weights: Out[Tile[tokens, k, F32]],
    ):
        best, which = pto.topk(pto.cast(logits, F32), k)
        shares = pto.exp(best - pto.row_max(best))
        pto.store(chosen, which)
        pto.store(weights, shares * pto.recip(pto.row_sum(shares)))

    return topk_router


@functools.cache
def embedding(rows: int, cols: int, dtype: DType = F32) -> Kernel:
    """`embedding(tokens, table, out)`: the row of the table for each token; zeros where there is
    none."""

    @kernel
    def embedding(
        tokens: In[Tile[rows, 1, DType.I32]], table: In[Tensor], out: Out[Tile[rows, cols, dtype]]
    ):
        pto.store(out, pto.gather(table, tokens, cols=cols))

    return embedding


@functools.cache
def argmax(rows: int, cols: int) -> Kernel:
    """`argmax(x, out)`: where each row has its largest element, the first of equal ones; rows of
    any length, `cols` of them at a time."""

    @kernel(body="tile")
    def argmax(x: In[Tensor], out: Out[Tile[rows, 1, DType.I32]]):
        s = pto.carry(
            most=pto.full((rows, 1), float("-inf"), F32), place=pto.zeros((rows, 1), DType.I32)
        )
        for at in pto.for_range(0, x.shape[1], cols):
            part = pto.cast(pto.load(x[0:rows, at : at + cols]), F32)
            most = pto.pad(pto.row_max(part), float("-inf"))
            place = pto.pad(pto.row_argmax(part), 0) + pto.cast(at, DType.I32)
            s.place = pto.where(most > s.most, place, s.place)
            s.most = pto.maximum(most, s.most)
        pto.store(out, s.place)

    return argmax
