"""Writes scheduled.plan: kinds.plan under a schedule that needs every stage of the issuer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from pto_wsp import DispatchPolicy, Pools, ReadyPolicy, TimingPolicy

_PATH = Path(__file__).with_name("kinds.py")


def plan_bytes() -> bytes:
    spec = importlib.util.spec_from_file_location("kinds", _PATH)
    assert spec is not None
    assert spec.loader is not None
    kinds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kinds)
    work = (
        kinds.work()
        .dispatch(DispatchPolicy.affinity(lambda t: t.rows))
        .streams(3)
        .stream_by(lambda t: t.ordinal)
        .timing(TimingPolicy.batched(5))
        .pipeline_depth(4)
        .pipeline_depth(2, scope="per_key", key=lambda t: t.site)
        .task_graph(
            ready=ReadyPolicy.priority(lambda t: -t.rows), pools=Pools.custom(lambda t: t.site, 2)
        )
    )
    return work.compile(target="reference").plan.to_bytes()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".plan")
    target.write_bytes(plan_bytes())
