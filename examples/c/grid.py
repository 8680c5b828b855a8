"""Writes grid.plan, which grid.c runs: `python examples/c/grid.py`, or to a file that is named."""

import sys
from pathlib import Path

import numpy as np

from pto_wsp import DenseDyn, In, Out, P, Plan, Tensor, kernel, workload


@kernel
def cell(above: In[Tensor], left: In[Tensor], out: Out[Tensor]):
    out[...] = above + left


@workload
def grid(rows, cols, x):
    for i, j in P(rows, cols):
        cell[i, j](above=x[i, j + 1], left=x[i + 1, j], out=x[i + 1, j + 1])


def make_plan() -> Plan:
    """A plan holds neither extents nor bodies: grid.c binds another size and has its own kernel."""
    x = np.zeros((2, 2), np.int64)
    return grid(DenseDyn(1), DenseDyn(1), Tensor(data=x)).compile(target="reference").plan


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("grid.plan")
    make_plan().save(path)
    print(f"{path}: {path.stat().st_size} bytes")
