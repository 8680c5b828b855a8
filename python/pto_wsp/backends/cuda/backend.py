"""The backend: plans as kernels, runs as launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.again import Again, Launch, Layout
from pto_wsp.backends.cuda.check import check_plan
from pto_wsp.backends.cuda.code import Known
from pto_wsp.backends.cuda.expanded import write_expanded
from pto_wsp.backends.cuda.expansion import Expansion, Table
from pto_wsp.backends.cuda.explain import explain
from pto_wsp.backends.cuda.faults import Places, on_host
from pto_wsp.backends.cuda.layouts import Layouts
from pto_wsp.backends.cuda.module import (
    CTRL_WORDS,
    MOST_TASKS,
    NEED_WORDS,
    Argument,
    Fault,
    Kind,
    Module,
    Need,
    Word,
)
from pto_wsp.backends.cuda.persistent import write_module
from pto_wsp.backends.cuda.run import CudaRun, Inputs
from pto_wsp.backends.cuda.schedule import read_schedule
from pto_wsp.backends.cuda.timeline import Room, depth_of
from pto_wsp.backends.reference import ReferenceBackend
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError
from pto_wsp.kernels import LoadedKernel
from pto_wsp.kernels.triton_code import TritonOptions
from pto_wsp.options import (
    ALLOW_HOST_EXPAND,
    BLOCKS_PER_SM,
    CHECK_PAGES,
    MAX_REGISTERS,
    NUM_STAGES,
    NUM_WARPS,
    TF32,
)
from pto_wsp.plan import (
    NONE,
    Access,
    AccessMode,
    Plan,
    Section,
    Symbol,
    Tensor,
)
from pto_wsp.runtime.bindings import Bound, Value
from pto_wsp.runtime.descriptors import Layout as Rows
from pto_wsp.runtime.engine import Explained, Generated
from pto_wsp.runtime.run_errors import run_error
from pto_wsp.runtime.stats import Stats
from pto_wsp.sharing import DeviceArray

_FIRST_EVENTS, _FIRST_SPACE = 1 << 16, 1 << 24  # counters and bytes before anything is known
_TRIES = 1 << 24  # polls of a counter, some seconds


class CudaBackend:
    """Runs plans whose tasks can be found by number, and whose dependences are proved."""

    name = "cuda"
    options: frozenset[str] = frozenset(
        option.name
        for option in (
            *(NUM_WARPS, NUM_STAGES, BLOCKS_PER_SM, MAX_REGISTERS, TF32),
            *(ALLOW_HOST_EXPAND, CHECK_PAGES),
        )
    )

    def check(self, plan: Plan) -> None:
        device.torch()
        check_plan(plan)

    def load(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> CudaEngine:
        return CudaEngine(plan, kernels, options)


class CudaEngine:
    """A plan on the device. Runs go into the current stream, in the order of `start`."""

    def __init__(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> None:
        self.plan = plan
        self._kernels = kernels
        self._options = options
        blocks = device.num_sms() * BLOCKS_PER_SM.of(options)
        self.workers = read_schedule(plan).grid(blocks)
        self._triton = TritonOptions(
            num_stages=NUM_STAGES.of(options), tf32=TF32.of(options), narrow=True
        )
        self._launch_options: dict[str, int] = {"num_warps": NUM_WARPS.of(options)}
        if MAX_REGISTERS.of(options):
            self._launch_options["maxnreg"] = MAX_REGISTERS.of(options)
        self._nothing = Known(trusts_pages=not CHECK_PAGES.of(options))  # known of tensors
        self._modules: dict[tuple[object, ...], tuple[Module, Any]] = {}
        self._again: Again | None = None
        self.launched = self.suspect = self._looked = 0
        self.lost = (1, 0)
        self._captured = False
        self._is_capturing = device.capturing()
        self._graphs: list[tuple[Any, ...]] = []  # memory of captured graphs
        self._repeat: tuple[Launch, tuple[Any, ...]] | None = None
        self._expansion: Expansion | None = None
        self.module = self._first_module()
        torch, where = device.torch(), device.name()
        self._ctrl = torch.zeros(CTRL_WORDS, dtype=torch.int32, device=where)
        need = Places.of(plan).words(self.workers)
        self._need = torch.zeros(need, dtype=torch.int64, device=where)
        self._events = torch.zeros(2 * _FIRST_EVENTS, dtype=torch.int32, device=where)
        self._space = torch.empty(_FIRST_SPACE, dtype=torch.int8, device=where)
        self._written = _written(plan)
        self._layouts = Layouts(plan)
        self._trace = Room(plan, self.workers) if plan.is_traced else None
        # Polls of a counter before a wait is given up. The interpreter runs one block after the
        # other, so that whoever waits there waits for ever.
        self.tries = 1 if device.is_interpreted() else _TRIES

    def _first_module(self) -> Module:
        """With nothing known of tensors; it says what should be."""
        try:
            found = write_module(self.plan, self._triton, self._nothing, self.workers)
            if not (found.ordered and ALLOW_HOST_EXPAND.of(self._options)):
                return found
        except CompileError as refusal:
            if not ALLOW_HOST_EXPAND.of(self._options) or refusal.code is not Code.TARGET_LIMIT:
                raise
        self._expansion = Expansion(self.plan, depth_of(self.plan))
        return self._write(self._nothing)

    def _write(self, known: Known) -> Module:
        if self._expansion is None:
            return write_module(self.plan, self._triton, known, self.workers)
        return write_expanded(self.plan, self._triton, known, self.workers)

    @property
    def table(self) -> Table | None:
        """The tasks of the last run, if the host has listed them."""
        return None if self._expansion is None else self._expansion.table

    # --- running ---

    def adopt(self, value: object) -> DeviceArray | None:
        """Arrays of PyTorch, and of whoever offers DLPack."""
        return device.adopt(value)

    def start(
        self, bindings: tuple[Bound, ...], *, asynchronous: bool, hashed: bool = False
    ) -> CudaRun:
        self._captured |= asynchronous and self._is_capturing()
        inputs = self._inputs(bindings)
        module, kernel = self._module(inputs)
        run = CudaRun(self, module, inputs, hashed=hashed)
        run.launch(lambda: self._launch(module, kernel, inputs, hashed=hashed))
        values = tuple(bound.value for bound in bindings)
        self._again = None
        is_there = not any(isinstance(value, np.ndarray) for value in values)
        if not hashed and is_there and self._repeat is not None:
            launch, arguments = self._repeat
            layout = Layout.of(self.plan, module, inputs, frozenset(self._written), launch)
            self._again = Again(layout, values, inputs, arguments, self._repeat)
        if not asynchronous:
            run.finish()
        return run

    def start_quick(
        self,
        current: tuple[Value | None, ...],
        changed: dict[str, object],
        *,
        asynchronous: bool,
    ) -> tuple[CudaRun, tuple[Value, ...]] | None:
        """The last launch once more, if nothing but memory and its contents has changed."""
        again = self._again
        if again is None or again.made_with is not self._repeat or not again.is_for(current):
            return None
        if changed:
            again = again.with_memory(changed)
            if again is None:
                return None
            self._again = again
        self._captured |= asynchronous and self._is_capturing()
        run = CudaRun(self, again.layout.module, again.inputs, hashed=False)
        run.launch(partial(self._launch_again, again))
        if not asynchronous:
            run.finish()
        return run, again.values

    def _launch_again(self, again: Again) -> Any:
        """Also the second time, when there was no room and now is."""
        if again.made_with is self._repeat:
            return again.launch()
        module, kernel = self._module(again.inputs)
        return self._launch(module, kernel, again.inputs, hashed=False)

    def _inputs(self, bindings: tuple[Bound, ...]) -> Inputs:
        found = Inputs()
        arrays = found.arrays
        for symbol, bound in enumerate(bindings):
            value = bound.value
            if isinstance(value, DeviceArray):
                found.tensors[symbol] = value.array
            elif isinstance(value, np.ndarray):
                arrays[symbol] = value
                first = next(s for s, array in arrays.items() if array is value)
                known = found.tensors.get(first)
                found.tensors[symbol] = device.to_device(value) if known is None else known
                if symbol in self._written:
                    found.copied[symbol] = value
            else:
                found.numbers[symbol] = value
        self._check_apart(arrays, found)
        self._layouts.check(found.tensors, arrays)
        return found

    def _check_apart(self, arrays: dict[int, npt.NDArray[Any]], inputs: Inputs) -> None:
        """What tasks write is no other tensor as well: dependences were found by name."""
        on_device = {s: t for s, t in inputs.tensors.items() if s not in arrays}
        for symbol in self._written:
            for other in inputs.tensors:
                if other == symbol:
                    continue
                if symbol in arrays and other in arrays:
                    shared = np.may_share_memory(arrays[symbol], arrays[other])
                else:
                    both = symbol in on_device and other in on_device
                    shared = both and device.overlap(on_device[symbol], on_device[other])
                if shared:
                    raise self._not_apart(symbol, other)

    def _not_apart(self, symbol: int, other: int) -> Exception:
        names = [self.plan.string(self.plan.records(Symbol)[s].name) for s in (symbol, other)]
        return run_error(
            Code.ARRAY_WRITTEN,
            f"{names[0]!r}, which tasks write, shares memory with {names[1]!r}",
            loc=self.plan.loc(Section.SYMBOL, symbol),
            why="a GPU knows dependences by the names of tensors",
        )

    def _tensor(self, inputs: Inputs, tensor: int) -> Any:
        return inputs.tensors[self.plan.records(Tensor)[tensor].symbol]

    def _module(self, inputs: Inputs) -> tuple[Module, Any]:
        """The kernel for tensors that lie like these."""
        known = self._known(inputs)
        if known.key not in self._modules:
            module = self._write(known)
            self._modules[known.key] = module, device.load_source(module.text)
        return self._modules[known.key]

    def _known(self, inputs: Inputs) -> Known:
        """What of these tensors is compiled in: inner extents, how they lie, tokens a page. Of page
        tables, which grow with the longest sequence, nothing but whether two are one."""
        tensors = self.plan.records(Tensor)
        tables = {t.table for t in tensors if t.table != NONE}
        extents = {(t, d): int(self._tensor(inputs, t).shape[d]) for t, d in self.module.wanted}
        strides: dict[tuple[int, int], int] = {}
        same: dict[int, int] = {}
        places: dict[tuple[object, ...], int] = {}
        for index, record in enumerate(tensors):
            if record.pool != NONE:
                extents[record.pool, 1] = int(self._tensor(inputs, record.pool).shape[1])
            if record.symbol == NONE:
                continue
            tensor = inputs.tensors[record.symbol]
            if index not in tables:
                strides |= {(index, d): n for d, n in enumerate(tensor.stride())}
                continue
            place = tensor.data_ptr(), tensor.stride(), tensor.shape
            if places.setdefault(place, index) != index:
                same[index] = places[place]
        return replace(self._nothing, extents=extents, strides=strides, same=same)

    def _launch(
        self, module: Module, kernel: Any, inputs: Inputs, *, hashed: bool, room: int | None = None
    ) -> Any:
        """The records of a traced run, once it has ended. `room`: bytes of workspace, as if there
        were no more."""
        if hashed:
            self._need.zero_()
        traced: tuple[Any, ...] = ()
        if self._trace is not None and module.records is not None:
            traced = self._trace.arguments(module.records)
        arguments: tuple[Any, ...] = (
            *(self._value(inputs, argument) for argument in module.arguments),
            *(self._ctrl, self._need),
            *(self._events, len(self._events) // 2),
            *(self._space, len(self._space) if room is None else room),
            *(self.tries, module.direct, hashed),
            *traced,
            *self._listed(inputs),
        )
        options = {**self._launch_options, **self._together(module)}
        compiled = self._try(lambda: kernel[(self.workers,)](*arguments, **options))
        self._repeat = None
        # A traced run has records of its own, and no launch is like another.
        if compiled is not None and not traced and room is None and self._expansion is None:
            plain = tuple(x.data_ptr() if hasattr(x, "data_ptr") else x for x in arguments)
            self._repeat = device.launcher(compiled, self.workers), plain
        return traced[0] if traced else None

    def _together(self, module: Module) -> dict[str, bool]:
        """What makes the GPU refuse a launch whose blocks could not all run at a time."""
        if not module.together or self.workers == 1:
            return {}
        if not device.runs_together():
            raise self._not_together("Triton's interpreter runs one block after the other")
        return {} if device.is_interpreted() else {"launch_cooperative_grid": True}

    def _try(self, launch: Callable[[], Any]) -> Any:
        try:
            return launch()
        except RuntimeError as error:
            if "cooperative" not in str(error):
                raise
            raise self._not_together("the GPU has no room for that many") from None

    def _not_together(self, why: str) -> ExecutionError:
        return ExecutionError(
            Code.MACHINE_RESOURCES,
            f"{self.workers} blocks would have to run at a time",
            why=f"the schedule says whose a task is, tasks wait for each other, and {why}",
            fix="use fewer blocks (blocks_per_sm, max_registers, fewer in the schedule), or leave "
            "the directive out: without it no block waits for one that does not run",
        )

    def _listed(self, inputs: Inputs) -> tuple[Any, ...]:
        """The table of a plan that the host expands."""
        if self._expansion is None:
            return ()
        if self._is_capturing():
            raise run_error(
                Code.TARGET_LIMIT,
                "a program whose tasks the host lists cannot be captured in a CUDA graph",
                why="the list is that of one run, and replays may have other lengths",
            )
        given = on_host(self.plan, inputs.tensors, inputs.numbers, inputs.arrays)
        return self._expansion.arguments(given)

    def _value(self, inputs: Inputs, argument: Argument) -> Any:
        match argument.kind:
            case Kind.POINTER:
                return self._tensor(inputs, argument.number)
            case Kind.STRIDE:
                return self._tensor(inputs, argument.number).stride(argument.dim)
            case Kind.EXTENT | Kind.PAGE:
                return self._tensor(inputs, argument.number).shape[argument.dim]
            case Kind.NUMBER:
                return inputs.numbers[argument.number]
            case Kind.ARRAY:
                return inputs.tensors[argument.number]
            case Kind.ARRAY_EXTENT:
                return inputs.tensors[argument.number].shape[argument.dim]
            case Kind.ARRAY_STRIDE:
                return inputs.tensors[argument.number].stride(argument.dim)

    def reserve(self, bindings: tuple[Bound, ...]) -> None:
        """A run with no room at all says what it needs, and does nothing."""
        inputs = self._inputs(bindings)
        module, kernel = self._module(inputs)
        self._launch(module, kernel, inputs, hashed=False, room=-1)
        if self.words()[Word.ERROR] == Fault.CAPACITY:
            self.grow()

    # --- what a run left behind ---

    def grow(self) -> None:
        """Room for what the last run needed; nothing of it was run."""
        self._repeat = None  # it has the addresses of what there was
        torch, where, need = device.torch(), device.name(), self.needs()
        if need[Need.TICKETS] >= MOST_TASKS:
            message = f"a run of {need[Need.TICKETS]} tasks; there may be {MOST_TASKS - 1}"
            raise run_error(Code.MACHINE_RESOURCES, message)
        if self._captured:  # graphs go on with what they were captured with
            self._graphs.append((self._ctrl, self._need, self._events, self._space))
            self._ctrl, self._need = torch.zeros_like(self._ctrl), torch.zeros_like(self._need)
            self._events = torch.zeros_like(self._events)
            self._space = torch.empty_like(self._space)
            self._captured = False
        if need[Need.EVENTS] > len(self._events) // 2:
            self._events = torch.zeros(4 * need[Need.EVENTS], dtype=torch.int32, device=where)
        if need[Need.SPACE] > len(self._space):
            more = need[Need.SPACE] + need[Need.SPACE] // 4
            self._space = torch.empty(more, dtype=torch.int8, device=where)
        if self._trace is not None:
            self._trace.grow(need[Need.TICKETS])

    def words(self) -> list[int]:
        """The control words. After a fault everything is as at the beginning."""
        found = [int(word) for word in self._ctrl.cpu()]
        if found[Word.CONTROL]:
            self.suspect = self.launched
        elif found[Word.ERROR] == Fault.CAPACITY and self.launched - self._looked > 1:
            self.lost = (self._looked + 1, self.launched)
            self.grow()
        self._looked = self.launched
        if found[Word.ERROR] or found[Word.KERNEL] or found[Word.CONTROL]:
            self._ctrl.zero_()
            self._events.zero_()
        return found

    def needs(self) -> list[int]:
        return [int(word) for word in self._need[:NEED_WORDS].cpu()]

    def details(self) -> list[int]:
        """Which task a fault is about; asked once."""
        found = [int(word) for word in self._need.cpu()]
        self._need.zero_()
        return found

    # --- questions ---

    def trace_to(self, path: Path) -> None:
        del path  # the records of a run are in memory until it has ended
        if self._trace is not None:
            self._trace.keep_all()

    def generate(self, bindings: tuple[Bound, ...]) -> Generated:
        return ReferenceBackend().load(self.plan, self._kernels, {}).generate(bindings)

    def descriptors(self, bindings: tuple[Bound, ...], layout: Rows) -> npt.NDArray[np.uint32]:
        return ReferenceBackend().load(self.plan, self._kernels, {}).descriptors(bindings, layout)

    def explain(self, stats: Stats | None) -> list[Explained]:
        return explain(self.plan, self.module, self.workers, stats)

    def clone(self) -> CudaEngine:
        return CudaEngine(self.plan, self._kernels, self._options)

    def close(self) -> None:
        device.synchronize()


def _written(plan: Plan) -> set[int]:
    """Symbols of tensors that tasks write, pools of pages included."""
    tensors = plan.records(Tensor)
    named = [tensors[a.tensor] for a in plan.records(Access) if a.mode != AccessMode.IN]
    pools = [tensors[t.pool].symbol for t in named if t.pool != NONE]
    return {t.symbol for t in named if t.symbol != NONE} | set(pools)
