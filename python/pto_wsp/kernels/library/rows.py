"""Rows by their numbers: which ones are largest, which belong together, and moving them."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import DType, In, InOut, Kernel, Out, Tensor, Tile, kernel, pto

F32, I32 = DType.F32, DType.I32
NEVER = float("-inf")


@functools.cache
def select_topk(k: int, block: int = 4096) -> Kernel:
    """`select_topk(scores, chosen)`: where the `k` largest of any number of finite scores are,
    largest first and the first of equal ones first; -1 behind the last where there are fewer.
    `block` scores at a time are merged with the best so far."""

    @kernel(body="tile")
    def select_topk(scores: In[Tensor], chosen: Out[Tile[k, I32]]):
        s = pto.carry(best=pto.full((1, k), NEVER, F32), which=pto.full((1, k), -1, I32))
        for at in pto.for_range(0, scores.shape[0], block):
            new = pto.pad(pto.cast(pto.load(scores[at : at + block]), F32), NEVER)
            places = pto.arange((1, block), I32, start=pto.cast(at, I32))
            # Those of before stand in front, so that of equal scores they go first.
            best, where = pto.topk(pto.concat([s.best, new], axis=1), k)
            s.which = pto.gather(pto.concat([s.which, places], axis=1).T, where.T).T
            s.best = best
        pto.store(chosen, s.which)

    return select_topk


@functools.cache
def group_choices(groups: int, k: int) -> Kernel:
    """`group_choices(chosen, indptr, indices, places)`: a counting sort. `chosen[token, j]` is the
    group of choice token * k + j. Group g then has the choices `indices[indptr[g]]` to
    `indices[indptr[g + 1] - 1]`, in their order; `places[token, j]` is where a choice went."""

    @kernel(body="tile")
    def group_choices(
        chosen: In[Tensor],
        indptr: InOut[Tile[groups + 1, I32]],  # written before it is read
        indices: Out[Tensor],
        places: Out[Tensor],
    ):
        tokens = chosen.shape[0]
        pto.store(indptr, 0)
        for t in pto.for_range(0, tokens):
            for j in range(k):
                group = pto.load(chosen[t, j])
                pto.store(indptr[group], pto.load(indptr[group]) + 1)
        s = pto.carry(total=pto.scalar(0, I32))
        for group in pto.for_range(0, groups + 1):
            s.total = s.total + pto.load(indptr[group])
            pto.store(indptr[group], s.total)
        # From the last choice to the first, each goes before the end of its group, which becomes
        # the beginning in that way.
        for back in pto.for_range(0, tokens):
            t = tokens - 1 - back
            for j in reversed(range(k)):
                group = pto.load(chosen[t, j])
                place = pto.load(indptr[group]) - 1
                pto.store(indptr[group], place)
                pto.store(indices[place], pto.cast(t, I32) * k + j)
                pto.store(places[t, j], place)

    return group_choices


@functools.cache
def gather_choices(rows: int, cols: int, k: int, dtype: DType = F32) -> Kernel:
    """`gather_choices(x, choices, out)`: for each choice the row of its token, choice // k."""

    @kernel(body="tile")
    def gather_choices(
        x: In[Tensor], choices: In[Tile[rows, I32]], out: Out[Tile[rows, cols, dtype]]
    ):
        pto.store(out, pto.gather(x, (choices // k).T, cols=cols))

    return gather_choices


@functools.cache
def combine_choices(rows: int, cols: int, k: int, dtype: DType = F32) -> Kernel:
    """`combine_choices(x, places, weights, out)`: for each token the weighted sum of the rows
    `x[places[token, j]]`, added in the order of j."""

    @kernel(body="tile")
    def combine_choices(
        x: In[Tensor],
        places: In[Tile[rows, k, I32]],
        weights: In[Tile[rows, k, F32]],
        out: Out[Tile[rows, cols, dtype]],
    ):
        sum = pto.zeros((rows, cols), F32)
        for j in range(k):
            row = pto.gather(x, pto.load(places[0:rows, j : j + 1]), cols=cols)
            sum = sum + pto.cast(row, F32) * pto.load(weights[0:rows, j : j + 1])
        pto.store(out, pto.cast(sum, dtype))

    return combine_choices
