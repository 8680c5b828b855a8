"""The backend: plans as kernels, runs as launches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.check import check_plan
from pto_wsp.backends.cuda.code import Known
from pto_wsp.backends.cuda.persistent import CTRL_WORDS, Argument, Fault, Kind, Module, write_module
from pto_wsp.error_codes import Code
from pto_wsp.errors import DeadlockError, ExecutionError, KernelError
from pto_wsp.kernels import LoadedKernel
from pto_wsp.kernels.triton_code import TritonOptions
from pto_wsp.plan import NONE, Access, AccessMode, Plan, Section, Symbol, SymbolKind, Tensor
from pto_wsp.plan.disasm import directive_texts
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.descriptors import Layout
from pto_wsp.runtime.engine import Explained, Generated
from pto_wsp.runtime.run_errors import run_error
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded, trace_dtype
from pto_wsp.sharing import DeviceArray

_FIRST_EVENTS, _FIRST_SPACE = 1 << 16, 1 << 24  # counters and bytes before anything is known
_TRIES = 1 << 24  # polls of a counter, some seconds


class CudaBackend:
    name = "cuda"
    options: frozenset[str] = frozenset(
        {"num_warps", "num_stages", "blocks_per_sm", "max_registers", "tf32"}
    )

    def check(self, plan: Plan) -> None:
        check_plan(plan)

    def load(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> CudaEngine:
        del kernels  # bodies are in the plan
        device.torch()
        return CudaEngine(plan, dict(options))


@dataclass(slots=True)
class _Given:
    """What a run was given, on the device."""

    tensors: dict[int, Any]  # by symbol: a PyTorch tensor
    numbers: dict[int, int | float]
    copied: list[tuple[int, npt.NDArray[Any]]]  # those that came from NumPy and are written


class CudaEngine:
    """A plan on the device. Runs go into the current stream, in the order of `start`."""

    def __init__(self, plan: Plan, options: dict[str, object]) -> None:
        self.plan = plan
        self._options = options
        self.workers = device.num_sms() * int(options.get("blocks_per_sm", 0) or 2)
        self._modules: dict[tuple[object, ...], tuple[Module, Any]] = {}
        self._first = write_module(plan, self._triton(), Known())
        torch = device.torch()
        where = device.name()
        self._ctrl = torch.zeros(CTRL_WORDS + 16, dtype=torch.int32, device=where)
        self._need = torch.zeros(8, dtype=torch.int64, device=where)
        self._events = torch.zeros(2 * _FIRST_EVENTS, dtype=torch.int32, device=where)
        self._space = torch.empty(_FIRST_SPACE, dtype=torch.int8, device=where)
        self._written = _written(plan)

    def _triton(self) -> TritonOptions:
        stages = self._options.get("num_stages", 3)
        assert isinstance(stages, int)
        tf32 = bool(self._options.get("tf32", False))
        return TritonOptions(num_stages=stages, tf32=tf32, narrow=True)

    # --- running ---

    def adopt(self, value: object) -> DeviceArray | None:
        """Arrays of PyTorch, and of whoever offers DLPack."""
        return device.adopt(value)

    def start(
        self, bindings: tuple[Bound, ...], *, asynchronous: bool, hashed: bool = False
    ) -> CudaRun:
        del hashed
        given = self._bind(bindings)
        began = time.monotonic_ns()
        module, kernel = self._module(given)
        run = CudaRun(self, module, given, began)
        run.launch = lambda: self._launch(module, kernel, given)
        run.launch()
        if not asynchronous:
            run.finish()
        return run

    def _bind(self, bindings: tuple[Bound, ...]) -> _Given:
        found = _Given({}, {}, [])
        arrays: dict[int, npt.NDArray[Any]] = {}
        for symbol, bound in enumerate(bindings):
            if isinstance(bound.value, np.ndarray):
                arrays[symbol] = bound.value
                first = next(s for s, array in arrays.items() if array is bound.value)
                if first == symbol:
                    found.tensors[symbol] = device.to_device(bound.value)
                found.tensors[symbol] = found.tensors[first]
                if symbol in self._written:
                    found.copied.append((symbol, bound.value))
            elif isinstance(bound.value, DeviceArray):
                found.tensors[symbol] = bound.value.array
            else:
                found.numbers[symbol] = bound.value
        self._check_apart(arrays)
        return found

    def _check_apart(self, arrays: dict[int, npt.NDArray[Any]]) -> None:
        """What tasks write is no other tensor as well: dependences were found by name."""
        for symbol in self._written & arrays.keys():
            for other, array in arrays.items():
                if other != symbol and np.may_share_memory(arrays[symbol], array):
                    names = [self._symbol_name(s) for s in (symbol, other)]
                    raise run_error(
                        Code.ARRAY_WRITTEN,
                        f"{names[0]!r}, which tasks write, shares memory with {names[1]!r}",
                        loc=self.plan.loc(Section.SYMBOL, symbol),
                        why="a GPU knows dependences by the names of tensors",
                    )

    def _symbol_name(self, symbol: int) -> str:
        return self.plan.string(self.plan.records(Symbol)[symbol].name)

    def _tensor(self, given: _Given, tensor: int) -> Any:
        return given.tensors[self.plan.records(Tensor)[tensor].symbol]

    def _module(self, given: _Given) -> tuple[Module, Any]:
        """The kernel for tensors of these inner extents, which are compiled in."""
        known = self._known(given)
        if known.key not in self._modules:
            module = write_module(self.plan, self._triton(), known)
            self._modules[known.key] = module, device.load_source(module.text)
        return self._modules[known.key]

    def _known(self, given: _Given) -> Known:
        """What of these tensors is compiled in: inner extents, how they lie, tokens a page. Of page
        tables, which grow with the longest sequence, nothing but whether two are one."""
        tensors = self.plan.records(Tensor)
        tables = {t.table for t in tensors if t.table != NONE}
        extents = {(t, d): int(self._tensor(given, t).shape[d]) for t, d in self._first.wanted}
        strides: dict[tuple[int, int], int] = {}
        same: dict[int, int] = {}
        places: dict[tuple[object, ...], int] = {}
        for index, record in enumerate(tensors):
            if record.pool != NONE:
                extents[record.pool, 1] = int(self._tensor(given, record.pool).shape[1])
            if record.symbol == NONE:
                continue
            tensor = given.tensors[record.symbol]
            if index not in tables:
                strides |= {(index, d): n for d, n in enumerate(tensor.stride())}
                continue
            place = tensor.data_ptr(), tensor.stride(), tensor.shape
            if places.setdefault(place, index) != index:
                same[index] = places[place]
        return Known(extents, strides, same)

    def _launch(self, module: Module, kernel: Any, given: _Given) -> None:
        arguments = [self._value(given, argument) for argument in module.arguments]
        direct = not module.waits
        warps = self._options.get("num_warps", 4)
        registers = self._options.get("max_registers", 0)
        kernel[(self.workers,)](
            *arguments,
            self._ctrl,
            self._need,
            self._events,
            len(self._events) // 2,
            self._space,
            len(self._space),
            1 if device.is_interpreted() else _TRIES,
            direct,
            num_warps=warps,
            **({"maxnreg": registers} if registers else {}),
        )

    def _value(self, given: _Given, argument: Argument) -> Any:
        match argument.kind:
            case Kind.POINTER:
                return self._tensor(given, argument.number)
            case Kind.STRIDE:
                return self._tensor(given, argument.number).stride(argument.dim)
            case Kind.EXTENT | Kind.PAGE:
                return self._tensor(given, argument.number).shape[argument.dim]
            case Kind.NUMBER:
                return given.numbers[argument.number]
            case Kind.ARRAY:
                return given.tensors[argument.number]
            case Kind.ARRAY_EXTENT:
                return given.tensors[argument.number].shape[argument.dim]
            case Kind.ARRAY_STRIDE:
                return given.tensors[argument.number].stride(argument.dim)

    def grow(self) -> None:
        """Room for what the last run needed; nothing of it was run."""
        torch = device.torch()
        tasks, events, space = (int(n) for n in self._need[:3].cpu())
        if tasks >= 1 << 30:
            raise run_error(Code.MACHINE_RESOURCES, f"{tasks} tasks are 2**30 or more")
        if events > len(self._events) // 2:
            self._events = torch.zeros(4 * events, dtype=torch.int32, device=device.name())
            self._ctrl[:3] = 0
        if space > len(self._space):
            self._space = torch.empty(space + space // 4, dtype=torch.int8, device=device.name())

    def words(self) -> list[int]:
        """The control words; a fault is taken away."""
        found = [int(word) for word in self._ctrl.cpu()]
        if found[3]:
            self._ctrl[3:8] = 0
            self._ctrl[CTRL_WORDS:] = 0
            self._ctrl[1:3] = 0
            self._events.zero_()
        return found

    def needs(self) -> list[int]:
        return [int(n) for n in self._need[:3].cpu()]

    # --- questions ---

    def trace_to(self, path: Path) -> None:
        del path

    def generate(self, bindings: tuple[Bound, ...]) -> Generated:
        from pto_wsp.backends.reference import ReferenceBackend

        return ReferenceBackend().load(self.plan, (), {}).generate(bindings)

    def descriptors(self, bindings: tuple[Bound, ...], layout: Layout) -> npt.NDArray[np.uint32]:
        from pto_wsp.backends.reference import ReferenceBackend

        return ReferenceBackend().load(self.plan, (), {}).descriptors(bindings, layout)

    def explain(self, stats: Stats | None) -> list[Explained]:
        del stats
        return [
            Explained(text, "by the kernel", "", self.plan.loc(Section.SCHEDULE, index))
            for index, text in enumerate(directive_texts(self.plan))
        ]

    def source(self) -> str:
        """The generated module, as far as it is known without values."""
        return self._first.text

    def clone(self) -> CudaEngine:
        return CudaEngine(self.plan, self._options)

    def close(self) -> None:
        if not device.is_interpreted():
            device.torch().cuda.synchronize()


class CudaRun:
    """One launch."""

    def __init__(self, engine: CudaEngine, module: Module, given: _Given, began: int) -> None:
        self._engine = engine
        self._module = module
        self._given = given
        self._began = began
        self._elapsed = 0
        self._error: ExecutionError | None = None
        self._ended = False
        self._tasks = 0
        self.launch: Any = None

    def finish(self) -> None:
        """Waits, and looks at what happened."""
        if self._ended:
            return
        words = self._engine.words()
        if words[3] == Fault.CAPACITY.value:
            try:
                self._engine.grow()
            except ExecutionError as error:
                self._error, self._ended = error, True
                return
            self.launch()
            words = self._engine.words()
        if words[3]:
            self._error = self._fault(words)
        self._tasks = self._engine.needs()[0]
        for symbol, array in self._given.copied:
            device.from_device(self._given.tensors[symbol], array)
        self._elapsed = time.monotonic_ns() - self._began
        self._ended = True

    def _fault(self, words: list[int]) -> ExecutionError:
        plan, site, number, detail = self._engine.plan, words[4], words[5], words[6]
        name, loc = plan.site_name(site), plan.loc(Section.SITE, site)
        match Fault(words[3]):
            case Fault.OUTSIDE:
                message = f"task {number}, of {name!r}, touches elements outside its tensors"
                return run_error(Code.OUT_OF_BOUNDS, message, loc=loc)
            case Fault.STUCK:
                wait = self._module.waits[detail]
                sources = ", ".join(repr(plan.site_name(s)) for s in wait.group.sites)
                return DeadlockError(
                    Code.DEADLOCK,
                    f"task {number}, of {name!r}, waits for {sources or 'the part before it'}",
                    loc=loc,
                    why="what it waits for has not ended after some seconds",
                )
            case _:
                return KernelError(
                    Code.KERNEL_FAILED,
                    f"kernel {name!r} failed in task {number}",
                    kernel=name,
                    indices=(),
                    loc=loc,
                )

    def wait(self, timeout: float | None) -> bool:
        del timeout
        self.finish()
        if self._error is not None:
            raise self._error
        return True

    def done(self) -> bool:
        return self._ended

    def task_hash(self) -> tuple[int, int] | None:
        return None

    def recording(self) -> bytes:
        return b""

    def stats(self) -> Stats:
        return Stats(
            tasks=self._tasks,
            generated=self._tasks,
            elapsed_ns=self._elapsed,
            began_ns=self._began,
            workers=self._engine.workers,
        )

    def trace(self) -> npt.NDArray[Any]:
        return np.zeros(0, trace_dtype(1, 1))

    def recorded(self) -> Recorded:
        return Recorded((self.trace(),))


def _written(plan: Plan) -> set[int]:
    """Symbols of tensors that tasks write, pools of pages included."""
    tensors = plan.records(Tensor)
    named = [tensors[a.tensor] for a in plan.records(Access) if a.mode != AccessMode.IN]
    pools = [tensors[t.pool].symbol for t in named if t.pool != NONE]
    return {t.symbol for t in named if t.symbol != NONE} | set(pools)
