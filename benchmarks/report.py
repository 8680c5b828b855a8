"""The tables that a run prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from benchmarks.context import Json

_WIDE = 180  # columns of a file or a pipe, which have no width of their own


def console() -> Console:
    """Where tables go: as wide as the terminal, if it is one."""
    shown = Console()
    return shown if shown.is_terminal else Console(width=_WIDE)


def machine(result: Json) -> Table:
    """What the numbers below were measured on."""
    facts = result["machine"]
    shown = Table(title="machine", title_justify="left", show_header=False)
    load = facts["load_at_start"]
    rows = {
        "cpu": f"{facts['cpu']}, {facts['usable_cores'] or facts['cores']} cores",
        "commit": f"{(facts['commit'] or '?')[:12]}, {facts['changed_files']} changed files",
        "rivals": ", ".join(facts["rivals"].values()) or "none",
        "protocol": f"{result['protocol']['runs']} interleaved runs, scale "
        f"{result['protocol']['scale']:g}, {result['protocol']['workers']} workers",
        "plain threads": f"{facts['parallel_ceiling']:.2f} times one thread, load before "
        f"{load[0] if load else 0:.1f}",
    }
    for name, text in rows.items():
        shown.add_row(name, text)
    return shown


def _network(result: Json) -> Iterator[RenderableType]:
    messages, pipeline = result["messages"], result["pipeline"]
    for way, what in (("any", "any worker"), ("apart", "a worker for each end")):
        rate = messages[way]["million_per_s"]["median"]
        yield f"messages through one channel, {what}: {rate:.2f} M/s"
    yield (
        f"two stages of 10 us with two buffers: {pipeline['speedup']['median']:.2f} times one "
        f"worker, tasks per worker {pipeline['worker_tasks']}"
    )


def section(name: str, result: Json) -> Iterator[RenderableType]:
    """The tables of one section of the JSON."""
    match name:
        case "graphs":
            yield _graphs(result)
            yield _memory(result)
        case "bodies":
            yield _bodies(result)
        case "metg":
            yield _metg(result)
        case "chains":
            yield (
                f"64 chains of {result['length']:,} tasks of 10 us: "
                f"{result['speedup']['median']:.2f} times one worker, tasks per worker "
                f"{result['worker_tasks']}"
            )
        case "overlap":
            yield (
                f"rows against columns of 64 x 64 tiles: {result['tasks_per_s']:,.0f} tasks/s, "
                f"{result['edges_found']:,} edges found"
            )
        case "schedule":
            yield _schedule(result)
        case "network":
            yield from _network(result)
        case "kernels":
            yield _kernels(result)
        case "llm":
            yield _llm(result)
        case "llm_model":
            yield from _llm_model(result)
        case "host":
            yield _host(result)
        case "long":
            yield (
                f"{result['tasks']:,} tasks in {result['seconds']:.1f} s: "
                f"{result['counted_mb']:.2f} MB counted, process grew by "
                f"{result['process_grew_mb']:.2f} MB"
            )
        case _:
            pass


def _table(title: str, first: str, *numbers: str) -> Table:
    shown = Table(title=title, title_justify="left")
    shown.add_column(first)
    for name in numbers:
        shown.add_column(name, justify="right")
    return shown


def _ratio(samples: Json | None) -> str:
    """Median, and the half of the rounds that lies around it."""
    if samples is None:
        return "-"
    return f"{samples['median']:.3g} [dim]{samples['q1']:.3g}-{samples['q3']:.3g}[/]"


def _graphs(result: Json) -> Table:
    rivals = sorted({name for graph in result.values() for name in graph["rivals"]})
    kinds = sorted({name.rsplit("_", 1)[0] for name in rivals})
    shown = _table(
        "tasks per ms, build + execute, all workers (one worker); ratios of paired runs",
        "graph",
        "row",
        "pto_wsp",
        *rivals,
        *(f"x {kind}" for kind in kinds),
        "x better tbb",
        "per worker",
        "edges",
    )
    for name, graph in result.items():
        for row in ("pipelined", "held"):
            ours = graph[row]
            off = ours.get("edges_off_by")
            verdict = "" if off is None else " [green]=[/]" if off == 0 else f" [red]off {off:+}[/]"
            shown.add_row(
                name,
                row,
                f"{ours['tasks_per_ms']:,.0f} ({ours['tasks_per_ms_one_worker']:,.0f})",
                *(
                    f"{graph['rivals'][each]['tasks_per_ms']:,.0f}"
                    if each in graph["rivals"]
                    else "-"
                    for each in rivals
                ),
                *(_ratio(ours.get(f"vs_{kind}")) for kind in kinds),
                _ratio(ours.get("vs_tbb_better")),
                _shares(ours["worker_tasks"]),
                f"{ours['edges']:,}{verdict}",
            )
    return shown


def _shares(worker_tasks: list[int]) -> str:
    total = sum(worker_tasks) or 1
    return " ".join(f"{100 * tasks / total:.0f}%" for tasks in worker_tasks)


def _memory(result: Json) -> Table:
    shown = _table("memory of a window that holds the graph", "graph", "bytes a task", "budget")
    for name, graph in result.items():
        memory = graph["memory"]
        shown.add_row(name, f"{memory['bytes_per_task']:.0f}", f"{memory['budget']:.0f}")
    return shown


def _bodies(result: Json) -> Table:
    labels = list(next(iter(result.values())))
    kinds = ("speed-up", "of ideal", "per worker")
    columns = [f"{label}: {kind}" for label in labels for kind in kinds]
    shown = _table("longer bodies, all workers over one", "graph", *columns)
    for name, graph in result.items():
        cells: list[str] = []
        for label in labels:
            entry = graph[label]
            cells += [
                _ratio(entry["speedup"]),
                f"{100 * entry['of_ideal']:.0f}%",
                _shares(entry["worker_tasks"]),
            ]
        shown.add_row(name, *cells)
    return shown


def _metg(result: Json) -> Table:
    contenders = list(next(iter(result.values())))
    shown = _table("METG(50 %): shortest useful body in ns", "graph", *contenders)
    for name, graph in result.items():
        shown.add_row(name, *(_length(graph[contender]) for contender in contenders))
    return shown


def _length(entry: Json) -> str:
    if entry["ns"] is None:
        return f"> {entry['longest_ns']:,.0f}"
    return f"{'≤ ' if entry['bound'] == 'at most' else ''}{entry['ns']:,.0f}"


def _schedule(result: Json) -> Table:
    shown = _table(
        "what a schedule adds, ns a task", "graph", "workers", "plain", "ordered", "traced"
    )
    for graph, rows in result.items():
        for workers, row in rows.items():
            names = ("plain_ns", "ordered_adds_ns", "traced_adds_ns")
            shown.add_row(graph, workers, *(_ratio(row[name]) for name in names))
    return shown


def _kernels(result: Json) -> Table:
    shown = _table("tile kernels", "what", "ours, ms", "rival", "theirs, ms", "times", "errors")
    rivals = {"vs_numpy": "numpy", "of_copy": "copy", "vs_torch": "torch"}
    for what in ("product", "softmax", "rmsnorm", "attention"):
        row = result[what]
        errors = ", ".join(f"{who} {error:.1e}" for who, error in row["errors"].items())
        for key, rival in rivals.items():
            if key in row:
                ours, theirs = (f"{row[f'{who}_ms']['median']:.2f}" for who in ("ours", rival))
                shown.add_row(what, ours, rival, theirs, _ratio(row[key]), errors)
    shown.add_row("first compile of ten", f"{1000 * result['compile']['ten_kernels_s']:.0f}")
    return shown


def _llm(result: Json) -> Table:
    shown = _table(
        "paged decode, 64 ragged sequences",
        *("pool", "ms", "GB/s", "of stream", "x torch", "errors"),
        *("bytes, most/mean", "with stealing", "first task, us", "after a pause"),
    )
    for name, row in result["decode"].items():
        shown.add_row(
            name,
            f"{row['ours_ms']['median']:.1f}",
            f"{row['gb_per_s']['median']:.1f}",
            _ratio(row["of_stream"]),
            _ratio(row.get("vs_torch")),
            ", ".join(f"{who} {error:.1e}" for who, error in row["errors"].items()),
            _ratio(row["unevenness"]),
            _ratio(row["unevenness_with_stealing"]),
            _ratio(row["first_task_of_next_step_us"]),
            _ratio(row["first_task_after_pause_us"]),
        )
    return shown


def _llm_model(result: Json) -> Iterator[str]:
    step, decode = result["step"], result["decode"]
    torch = ""
    if "torch_ms" in step:
        torch = f", torch {step['torch_ms']['median']:.2f} ms, {_ratio(step['vs_torch'])} times"
    yield (
        f"a step of a small LLaMA, {step['tasks']:,} tasks: {step['ours_ms']['median']:.2f} ms, "
        f"{step['tasks_per_s']:,.0f} tasks/s, {step['weights_gb_per_s']:.1f} GB/s{torch}"
    )
    if decode is not None:
        yield (
            f"{decode['steps']} steps of it: error at most {decode['largest_error']:.1e}, "
            f"{decode['wrong_tokens']} wrong tokens (two largest logits at least "
            f"{decode['smallest_margin']:.0e} apart), "
            f"process grew by {decode['grown_mb']:.2f} MB"
        )


def _host(result: Json) -> Table:
    shown = _table("host side", "what", "value", "unit")

    def add(what: str, entry: Any, unit: str) -> None:
        value = entry["median"] if isinstance(entry, dict) else entry
        shown.add_row(what, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}", unit)

    add("plan of LLaMA-7B attention", result["plan"]["bytes"], "bytes")
    add("compile it", result["compile"]["ms"], "ms")
    add("compile it, over 16 tasks", result["compile"]["large_over_small"], "times")
    add("compile the same object again", result["compile"]["again_ms"], "ms")
    add("compile in a fresh process", result["fresh"]["compile_ms"], "ms")
    add("import in a fresh process", result["fresh"]["import_ms"], "ms")
    add("generate, one thread", result["generation"]["million_tasks_per_s"], "M tasks/s")
    for kind, made in result["descriptors"].items():
        add(f"descriptors of ragged decode, {kind}", made["million_per_s"], "M rows/s")
    add("execute, 8 tensors rebound", result["execute"]["rebound_us"], "us")
    add("execute, nothing rebound", result["execute"]["unchanged_us"], "us")
    add("first task after the call", result["first_task"]["us"], "us")
    return shown
