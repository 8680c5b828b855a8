"""Which experts a token goes to."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, Kernel, Out, Tile, kernel, pto

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
