"""New keys and values of a batch go into the pages of their sequences."""

# Parameters of workloads are symbols, annotations of kernels values.
# pyright: basic
import functools

from pto_wsp import In, Out, P, Tensor, kernel, maximum, minimum, pto, workload
from pto_wsp.frontend.tensor_kinds import expect
from pto_wsp.frontend.workloads import WorkloadFunction
from pto_wsp.workloads.factories import made_once
from pto_wsp.workloads.parts import parts
from pto_wsp.workloads.refusals import check_counts


@made_once
def paged_append(dim: int, page: int) -> WorkloadFunction:
    """`paged_append(...)(batch, starts, past, k, v, keys, values)`: sequence b has `past[b]` tokens
    in the cache and gets those of rows `starts[b]` to `starts[b + 1]` of `k` and `v`, both
    `[token, KV head, dim]`, packed behind each other. One row is a decode step, several are a
    prefill. `keys` and `values` are PagedTensors as in `paged_decode`, with room for new tokens.

    A task writes one page of keys and one of values: whoever reads a sequence waits for its own
    pages.
    """
    check_counts("paged_append", dim=dim, page=page)
    write = _write(page, dim)

    @workload
    def paged_append(batch, starts, past, k, v, keys, values):
        for each in (k, v):
            expect(each, None, None, dim)
        for each in (keys, values):
            expect(each, None, None, None, dim, page=page)
        for b in P(batch):
            first, end = past[b], past[b] + starts[b + 1] - starts[b]
            for p in P(parts(end, page) - first // page):
                at = (first // page + p) * page
                here = slice(maximum(at, first), minimum(at + page, end))
                given = slice(starts[b] + here.start - first, starts[b] + here.stop - first)
                write[b, p](k[given], v[given], keys[b, here], values[b, here])

    return paged_append


@functools.cache
def _write(page: int, dim: int):
    @kernel(body="tile")
    def write_page(k: In[Tensor], v: In[Tensor], keys: Out[Tensor], values: Out[Tensor]):
        for h in pto.for_range(0, k.shape[1]):
            pto.store(keys[0:page, h, 0:dim], pto.load(k[0:page, h, 0:dim]))
            pto.store(values[0:page, h, 0:dim], pto.load(v[0:page, h, 0:dim]))

    return write_page
