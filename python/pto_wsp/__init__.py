"""Workload-Schedule Programming: write the workload once, schedule it per machine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pto_wsp.dtypes import DType as DType
from pto_wsp.errors import ChannelClosed as ChannelClosed
from pto_wsp.errors import ChannelError as ChannelError
from pto_wsp.errors import ChannelFull as ChannelFull
from pto_wsp.errors import CompileError as CompileError
from pto_wsp.errors import DeadlockError as DeadlockError
from pto_wsp.errors import ExecutionError as ExecutionError
from pto_wsp.errors import KernelError as KernelError
from pto_wsp.errors import OutOfPages as OutOfPages
from pto_wsp.errors import PlanError as PlanError
from pto_wsp.errors import PtoError as PtoError
from pto_wsp.errors import RaceError as RaceError
from pto_wsp.errors import ScheduleError as ScheduleError
from pto_wsp.errors import SynchronizeTimeout as SynchronizeTimeout
from pto_wsp.errors import TypeCheckError as TypeCheckError
from pto_wsp.errors import WindowOverflow as WindowOverflow
from pto_wsp.frontend import AUTO as AUTO
from pto_wsp.frontend import DYNAMIC as DYNAMIC
from pto_wsp.frontend import PAD_LAST as PAD_LAST
from pto_wsp.frontend import Accum as Accum
from pto_wsp.frontend import Affinity as Affinity
from pto_wsp.frontend import Channel as Channel
from pto_wsp.frontend import Constexpr as Constexpr
from pto_wsp.frontend import Dense as Dense
from pto_wsp.frontend import DenseDyn as DenseDyn
from pto_wsp.frontend import Deps as Deps
from pto_wsp.frontend import DispatchPolicy as DispatchPolicy
from pto_wsp.frontend import Event as Event
from pto_wsp.frontend import Graph as Graph
from pto_wsp.frontend import In as In
from pto_wsp.frontend import InOut as InOut
from pto_wsp.frontend import Interleaved as Interleaved
from pto_wsp.frontend import Kernel as Kernel
from pto_wsp.frontend import Location as Location
from pto_wsp.frontend import MemLayout as MemLayout
from pto_wsp.frontend import Metric as Metric
from pto_wsp.frontend import OrderPolicy as OrderPolicy
from pto_wsp.frontend import Out as Out
from pto_wsp.frontend import P as P
from pto_wsp.frontend import PagedTensor as PagedTensor
from pto_wsp.frontend import Parallel as Parallel
from pto_wsp.frontend import Pools as Pools
from pto_wsp.frontend import Process as Process
from pto_wsp.frontend import Ragged as Ragged
from pto_wsp.frontend import ReadyPolicy as ReadyPolicy
from pto_wsp.frontend import Scalar as Scalar
from pto_wsp.frontend import Schedule as Schedule
from pto_wsp.frontend import Sequential as Sequential
from pto_wsp.frontend import Space as Space
from pto_wsp.frontend import Sparse as Sparse
from pto_wsp.frontend import StartPolicy as StartPolicy
from pto_wsp.frontend import TaskWindow as TaskWindow
from pto_wsp.frontend import Tensor as Tensor
from pto_wsp.frontend import TensorLayout as TensorLayout
from pto_wsp.frontend import TensorReplicate as TensorReplicate
from pto_wsp.frontend import TensorShard as TensorShard
from pto_wsp.frontend import Tile as Tile
from pto_wsp.frontend import Tiled as Tiled
from pto_wsp.frontend import TimingPolicy as TimingPolicy
from pto_wsp.frontend import Token as Token
from pto_wsp.frontend import TracePolicy as TracePolicy
from pto_wsp.frontend import WindowMode as WindowMode
from pto_wsp.frontend import Workload as Workload
from pto_wsp.frontend import Workspace as Workspace
from pto_wsp.frontend import axis as axis
from pto_wsp.frontend import close as close
from pto_wsp.frontend import combine as combine
from pto_wsp.frontend import connect as connect
from pto_wsp.frontend import consume as consume
from pto_wsp.frontend import default as default
from pto_wsp.frontend import emit as emit
from pto_wsp.frontend import install_driver as _install_driver
from pto_wsp.frontend import kernel as kernel
from pto_wsp.frontend import maximum as maximum
from pto_wsp.frontend import minimum as minimum
from pto_wsp.frontend import process as process
from pto_wsp.frontend import receive as receive
from pto_wsp.frontend import record as record
from pto_wsp.frontend import reduce_all as reduce_all
from pto_wsp.frontend import reduce_any as reduce_any
from pto_wsp.frontend import reduce_max as reduce_max
from pto_wsp.frontend import reduce_min as reduce_min
from pto_wsp.frontend import reduce_sum as reduce_sum
from pto_wsp.frontend import relayout as relayout
from pto_wsp.frontend import replicate as replicate
from pto_wsp.frontend import search as search
from pto_wsp.frontend import select as select
from pto_wsp.frontend import select_tier as select_tier
from pto_wsp.frontend import send as send
from pto_wsp.frontend import sequential as sequential
from pto_wsp.frontend import slot_load_u64 as slot_load_u64
from pto_wsp.frontend import slot_set_u64 as slot_set_u64
from pto_wsp.frontend import slot_u64 as slot_u64
from pto_wsp.frontend import synchronize as synchronize
from pto_wsp.frontend import tier as tier
from pto_wsp.frontend import tiers as tiers
from pto_wsp.frontend import workload as workload

if TYPE_CHECKING:
    from pto_wsp.kernels import pto as pto
    from pto_wsp.launching import launch as launch
    from pto_wsp.plan import Plan as Plan
    from pto_wsp.runtime.program import Program as Program

__all__ = [
    "AUTO",
    "DYNAMIC",
    "PAD_LAST",
    "Accum",
    "Affinity",
    "Channel",
    "ChannelClosed",
    "ChannelError",
    "ChannelFull",
    "CompileError",
    "Constexpr",
    "DType",
    "DeadlockError",
    "Dense",
    "DenseDyn",
    "Deps",
    "DispatchPolicy",
    "Event",
    "ExecutionError",
    "Graph",
    "In",
    "InOut",
    "Interleaved",
    "Kernel",
    "KernelError",
    "Location",
    "MemLayout",
    "Metric",
    "OrderPolicy",
    "Out",
    "OutOfPages",
    "P",
    "PagedTensor",
    "Parallel",
    "Plan",
    "PlanError",
    "Pools",
    "Process",
    "Program",
    "PtoError",
    "RaceError",
    "Ragged",
    "ReadyPolicy",
    "Scalar",
    "Schedule",
    "ScheduleError",
    "Sequential",
    "Space",
    "Sparse",
    "StartPolicy",
    "SynchronizeTimeout",
    "TaskWindow",
    "Tensor",
    "TensorLayout",
    "TensorReplicate",
    "TensorShard",
    "Tile",
    "Tiled",
    "TimingPolicy",
    "Token",
    "TracePolicy",
    "TypeCheckError",
    "WindowMode",
    "WindowOverflow",
    "Workload",
    "Workspace",
    "axis",
    "close",
    "combine",
    "connect",
    "consume",
    "default",
    "emit",
    "kernel",
    "launch",
    "maximum",
    "minimum",
    "process",
    "pto",
    "receive",
    "record",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "relayout",
    "replicate",
    "search",
    "select",
    "select_tier",
    "send",
    "sequential",
    "slot_load_u64",
    "slot_set_u64",
    "slot_u64",
    "synchronize",
    "tier",
    "tiers",
    "workload",
]

# Compiling loads the native core; a program that only traces does without it.
_LOADED_ON_USE = {
    "Plan": "pto_wsp.driver",
    "Program": "pto_wsp.driver",
    "launch": "pto_wsp.launching",
    "pto": "pto_wsp.kernels",
}


def __getattr__(name: str) -> Any:
    if name in _LOADED_ON_USE:
        return getattr(importlib.import_module(_LOADED_ON_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_install_driver(lambda: importlib.import_module("pto_wsp.driver"))
