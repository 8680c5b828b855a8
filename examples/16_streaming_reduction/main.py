"""Mean and deviation of a stream of tiles, after each tile, with a state that goes round in a loop.

Workers turn each tile into a count, a mean and a sum of squares. `merge` puts that and the state
together, `keep` notes the result and sends the state back, through a channel that has a message of
zeros in it from the start: without that message nobody could begin. A virtual clock shows where the
loop, not the workers, sets the pace. All results are compared with NumPy in float64.
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
    connect,
    consume,
    kernel,
    process,
    receive,
    replicate,
    select,
    send,
    workload,
)

ROWS, COLS = 64, 32
Block = Tile[ROWS, COLS, DType.F32]
State = Tile[3, COLS, DType.F32]  # of each column: count, mean, sum of squares about the mean
MOMENTS, LOOP = 100, 10  # cycles of moments, of each kernel in the loop; reading takes none


@kernel(
    cpp_src="""
    for (int64_t i = 0; i < x.shape(0); ++i)
      for (int64_t j = 0; j < x.shape(1); ++j) tile(i, j) = x(i, j);
    """
)
def read(x: In[Tensor], tile: Out[Tensor]): ...


@kernel(
    cpp_src="""
    const float n = tile.shape(0);
    for (int64_t j = 0; j < tile.shape(1); ++j) {
      float mean = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) mean += tile(i, j) / n;
      for (int64_t i = 0; i < n; ++i) squares += (tile(i, j) - mean) * (tile(i, j) - mean);
      part(0, j) = n, part(1, j) = mean, part(2, j) = squares;
    }
    """
)
def moments(tile: In[Tensor], part: Out[Tensor]): ...


@kernel(
    cpp_src="""
    for (int64_t j = 0; j < part.shape(1); ++j) {
      const float n = state(0, j) + part(0, j), apart = part(1, j) - state(1, j);
      const float weight = part(0, j) / n;
      merged(0, j) = n;
      merged(1, j) = state(1, j) + apart * weight;
      merged(2, j) = state(2, j) + part(2, j) + apart * apart * state(0, j) * weight;
    }
    """
)
def merge(part: In[Tensor], state: In[Tensor], merged: Out[Tensor]): ...


@kernel(
    cpp_src="""
    for (int64_t j = 0; j < state.shape(1); ++j) {
      for (int64_t i = 0; i < 3; ++i) next(i, j) = state(i, j);
      result(0, j) = state(1, j);
      result(1, j) = std::sqrt(state(2, j) / state(0, j));
    }
    """
)
def keep(state: In[Tensor], result: Out[Tensor], next: Out[Tensor]): ...


def reduction(x: np.ndarray, results: np.ndarray, replicas: int) -> Workload:
    """The network, with `replicas` processes that reduce tiles."""
    X, R = Tensor(data=x, name="X"), Tensor(data=results, name="R")
    tiles = Channel[Block]("tiles", depth=2 * replicas)
    parts = Channel[State]("parts", depth=2 * replicas)
    merged = Channel[State]("merged", depth=1)
    state = Channel[State]("state", depth=1, initial=1)

    @workload
    def source(count):
        for i in P(count):
            send(tiles, read[i](x=X[i]))

    def reducer():
        with consume(tiles) as tile:
            send(parts, moments[tile.number](tile=tile))

    def merging():
        with consume(parts) as part:
            send(merged, merge[part.number](part=part, state=receive(state)))

    def keeping():
        with consume(merged) as s:
            send(state, keep[s.number](state=s, result=R[s.number]))

    return connect(
        [
            process("source").produces(tiles).body(source(DenseDyn(len(x)))),
            replicate(process("moments").consumes(tiles).produces(parts).body(reducer), replicas),
            process("merge").consumes(parts, state).produces(merged).body(merging),
            process("keep").consumes(merged).produces(state).body(keeping),
        ],
        [tiles, parts, merged, state],
    )


def expected(x: np.ndarray) -> np.ndarray:
    """Mean and deviation of all rows up to the end of each tile, in float64."""
    rows = x.reshape(-1, COLS).astype(np.float64)
    ends = range(ROWS, len(rows) + 1, ROWS)
    return np.array([[rows[:end].mean(axis=0), rows[:end].std(axis=0)] for end in ends])


def simulated(work: Workload) -> Program:
    """A run on a virtual clock, on which each process has a worker of its own."""
    costs = TracePolicy.cycles(lambda t: select(t.site == 0, 0, select(t.site == 1, MOMENTS, LOOP)))
    program = work.task_graph(trace=costs).compile()
    program.execute()
    return program


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
    x = np.random.default_rng(0).normal(1000, 1, (args.tiles, ROWS, COLS)).astype(np.float32)
    results = np.zeros((args.tiles, 2, COLS), np.float32)
    wanted = expected(x)

    path = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_streaming_reduction.json.gz"
    around = MOMENTS + 2 * LOOP * args.tiles
    print(f"{args.tiles} tiles; the first one and all rounds of the loop take {around} cycles")
    good = True
    for replicas in (1, 2, 4, 8, 16):
        program = simulated(reduction(x, results, replicas))
        cycles = int(program.trace["end_ns"].max())
        good &= cycles >= around
        print(f"{replicas:2} workers  {cycles:5} cycles")
        if replicas == 8:
            program.save_trace(path)

    results[:] = 0
    with reduction(x, results, replicas=4).compile(num_threads=2, verify="full") as program:
        program.execute()
    stats = program.stats
    print(f"for real    {stats.tasks} tasks, {stats.messages} messages, 2 threads")
    mean, deviation = (np.abs(results / wanted - 1)).max(axis=(0, 2))
    rows = x.reshape(-1, COLS)
    squares = (rows**2).mean(axis=0) - rows.mean(axis=0) ** 2  # in f32, as a plain sum would be
    plain = np.abs(np.sqrt(np.maximum(squares, 0)) / wanted[-1, 1] - 1).max()
    print(
        f"deviation   {deviation:.1e} from NumPy, where a plain sum of squares is {plain:.1e} off"
    )
    good &= mean < 1e-6 and deviation < 1e-4
    print(f"verdict     {'OK' if good else 'WRONG'}: at most {mean:.1e} from NumPy in float64")
    print(f"timeline    {path} (open it at https://ui.perfetto.dev)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
