"""Load, compute, store: three processes that pass tiles on, with one buffer and with two.

Each process is a loop of its own; channels join them, and a message is a tile in a buffer that the
runtime owns. With one buffer a stage waits until the next one is through with it; with two it fills
one while the other is read. A virtual clock shows what that is worth before there is a fast kernel,
and the same program then runs for real.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    TracePolicy,
    Workload,
    consume,
    kernel,
    pto,
    select,
    send,
    workload,
)

ROWS, COLS = 32, 64
Block = Tile[ROWS, COLS, DType.F32]
MOVE, COMPUTE = 80, 100  # cycles of a load or a store, and of a computation


@kernel
def load(x: In[Block], tile: Out[Block]):
    pto.store(tile, x)


@kernel
def compute(tile: In[Block], result: Out[Block]):
    pto.store(result, tile / (1.0 + pto.exp(-tile)))


@kernel
def store(result: In[Block], y: Out[Block]):
    pto.store(y, result)


def pipeline(x: np.ndarray, y: np.ndarray, depth: int) -> Workload:
    """The network with `depth` buffers between two stages."""
    X, Y = Tensor(data=x, name="X"), Tensor(data=y, name="Y")

    @workload
    def stages(tiles):
        loaded = Channel[Block]("loaded", depth=depth)
        computed = Channel[Block]("computed", depth=depth)
        with P.pipe():
            for i in P(tiles):
                send(loaded, load[i](x=X[i]))
            with consume(loaded) as tile:
                send(computed, compute[tile.number](tile=tile))
            with consume(computed) as result:
                store[result.number](result=result, y=Y[result.number])

    return stages(DenseDyn(len(x)))


def simulated(work: Workload) -> Program:
    """A run on a virtual clock, on which each process has a worker of its own."""
    costs = TracePolicy.cycles(lambda t: select(t.site == 1, COMPUTE, MOVE))
    program = work.task_graph(trace=costs).compile()
    program.execute()
    return program


def busy(program: Program) -> list[float]:
    """Which part of the time each process had a task, in %."""
    trace = program.trace
    lasted = trace["end_ns"] - trace["start_ns"]
    shares = np.bincount(trace["worker"], weights=lasted) / trace["end_ns"].max()
    return (100 * shares).tolist()


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=positive, default=64)
    parser.add_argument("--trace", type=Path, default=None, help="where the Perfetto trace goes")
    args = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((args.tiles, ROWS, COLS), np.float32)
    y = np.zeros_like(x)

    print(f"{args.tiles} tiles; load {MOVE}, compute {COMPUTE}, store {MOVE} cycles")
    print(f"one after the other  {args.tiles * (2 * MOVE + COMPUTE):6} cycles")
    cycles: dict[int, int] = {}
    for depth in (1, 2, 4):
        program = simulated(pipeline(x, y, depth))
        cycles[depth] = int(program.trace["end_ns"].max())
        shares = ", ".join(f"{share:.0f} %" for share in busy(program))
        print(f"depth {depth}              {cycles[depth]:6} cycles, stages busy {shares}")
        if depth == 2:
            trace = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_pipeline.json.gz"
            program.save_trace(trace)

    y[:] = 0
    with pipeline(x, y, depth=2).compile(num_threads=2, verify="full") as program:
        program.execute()
    stats = program.stats
    print(f"for real             {stats.tasks} tasks, {stats.messages} messages, 2 workers")
    wide = x.astype(np.float64)
    worst = np.abs(y - wide / (1 + np.exp(-wide))).max()
    # Two buffers hide all but the slowest stage, the first load and the last store.
    hidden = cycles[2] == args.tiles * COMPUTE + 2 * MOVE
    good = worst < 1e-5 and hidden
    print(f"verdict              {'OK' if good else 'WRONG'}: at most {worst:.1e} from NumPy")
    print(f"timeline             {trace} (open it at https://ui.perfetto.dev)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
