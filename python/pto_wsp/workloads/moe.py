"""Mixture of experts: a feed-forward layer whose tokens choose their experts in the same run."""

# The parameters of a workload are symbols while it is traced.
# pyright: basic
from pto_wsp import Dense, DType, P, Sparse, Tensor, kernels, workload
from pto_wsp.frontend.tensor_kinds import expect
from pto_wsp.frontend.workloads import WorkloadFunction
from pto_wsp.workloads.factories import made_once
from pto_wsp.workloads.parts import Product, part, parts
from pto_wsp.workloads.refusals import check_counts, check_f32, refused

F32, I32 = DType.F32, DType.I32


@made_once
def moe_ffn(
    experts: int,
    top_k: int,
    d_model: int,
    d_ff: int,
    *,
    chunk: int = 16,
    cols: int = 128,
    depth: int = 256,
) -> WorkloadFunction:
    """`moe_ffn(X, router, W1, W3, W2, Y)`: for each token, a row of X, the `top_k` best experts by
    X @ router.T, and in Y the sum of what they say, weighted by the softmax of those scores. Expert
    e says (silu(x @ W1[e].T) * (x @ W3[e].T)) @ W2[e].T.

    Weights are `[out, in]`, those of experts behind each other: `W1` and `W3` `[experts, d_ff,
    d_model]`, `W2` `[experts, d_model, d_ff]`, `router` `[experts, d_model]`. How many tokens there
    are is the number of rows of X and Y that a run is given.

    An expert's tokens are taken `chunk` at a time, and products `cols` columns, `depth` elements of
    their sums at a time. So experts with many tokens are many tasks, and one without is none. Each
    choice has a row of its own for what its expert says, so nothing is added up by several tasks
    and a token's bits do not depend on the order in which they run.
    """
    sizes = {"experts": experts, "top_k": top_k, "d_model": d_model, "d_ff": d_ff}
    check_counts("moe_ffn", **sizes, chunk=chunk, cols=cols, depth=depth)
    if top_k > experts:
        raise refused(
            f"moe_ffn: top_k is {top_k}, of {experts} experts",
            "a token asks top_k experts, none of them twice",
            f"pass at most {experts} for top_k",
        )
    product = Product(kernels.linear(chunk, cols, depth), cols)
    route = kernels.topk_router(chunk, experts, top_k)
    group_by_expert = kernels.group_choices(experts, top_k)
    gather = kernels.gather_choices(chunk, d_model, top_k)
    gated = kernels.gated_linear(chunk, cols, depth)
    combine = kernels.combine_choices(chunk, d_model, top_k)

    @workload
    def moe_ffn(X, router, W1, W3, W2, Y):
        for each in (X, Y):
            expect(each, None, d_model)
        for each in (W1, W3):
            expect(each, experts, d_ff, d_model)
        expect(W2, experts, d_model, d_ff)
        expect(router, experts, d_model)
        check_f32("moe_ffn", X=X, router=router, W1=W1, W3=W3, W2=W2, Y=Y)
        tokens = X.shape[0]
        choices = tokens * top_k
        logits = Tensor.temp((tokens, experts), F32, name="logits")
        chosen = Tensor.temp((tokens, top_k), I32, name="chosen")
        weights = Tensor.temp((tokens, top_k), F32, name="weights")
        for t in P(parts(tokens, chunk)):
            rows = part(t, chunk, tokens)
            product((t,), X[rows], (router,), (logits, rows), experts)
            route[t](logits[rows], chosen[rows], weights[rows])

        indptr = Tensor.temp((experts + 1,), I32, name="indptr")
        indices = Tensor.temp((choices,), I32, name="indices")
        places = Tensor.temp((tokens, top_k), I32, name="places")
        said = Tensor.temp((choices, d_model), F32, name="said")
        group_by_expert(chosen, indptr, indices, places)
        routing = Sparse(Dense[experts](), indptr, indices)
        for expert, chosen_by in routing.activated():
            for group in chosen_by.chunks(chunk):
                x = Tensor.temp((group.size, d_model), F32, name="x")
                hidden = Tensor.temp((group.size, d_ff), F32, name="hidden")
                gather[expert, group](X, group.indices, x)
                for f in P(parts(d_ff, cols)):
                    at = part(f, cols, d_ff)
                    gated[expert, group, f](x, W1[expert, at], W3[expert, at], hidden[:, at])
                product((expert, group), hidden, (W2, expert), (said, group.slice), d_model)

        for t in P(parts(tokens, chunk)):
            rows = part(t, chunk, tokens)
            combine[t](said, places[rows], weights[rows], Y[rows])

    return moe_ffn
