"""Counters of a run. Their meaning is in core/include/ptowsp/stats.def."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Stats:
    """What happened in the last run."""

    tasks: int = 0
    generated: int = 0
    edges: int = 0
    phases: int = 0
    live_high: int = 0
    map_high: int = 0
    ready_high: int = 0
    window_stalls: int = 0
    window_stall_ns: int = 0
    window_overflows: int = 0
    start_released: int = 0
    start_held: int = 0
    stolen: int = 0
    parks: int = 0
    bounds_proved: int = 0
    bounds_checked: int = 0
    elapsed_ns: int = 0
    trace_dropped: int = 0
    memory_bytes: int = 0
    workspace_bytes: int = 0
    timing_released: int = 0
    gate_stalls: int = 0
    loads: int = 0
    control_waits: int = 0
    window_bytes_high: int = 0
    dep_batches: int = 0
    dep_flushes: int = 0
    prefetch_tasks: int = 0
    prefetch_bytes: int = 0
    control_wait_ns: int = 0
    workspace_stalls: int = 0
    workspace_stall_ns: int = 0
    edges_high: int = 0
    messages: int = 0
    channel_empty: int = 0
    channel_full: int = 0
    channel_high: int = 0
    began_ns: int = 0
    came_awake: int = 0
    workers: int = 1
    worker_tasks: tuple[int, ...] = ()

    def __str__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return "\n".join(f"{name:>18}: {value}" for name, value in shown if value)
