"""Blocks of threads that take turns: the kernel that a GPU would run, in Triton's interpreter, with
a switch to another block, drawn from a seed, at every operation that blocks see of each other."""

from __future__ import annotations

import importlib
import inspect
import random
import threading
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from pto_wsp.backends.cuda import device

# What blocks see of each other: their memory.
_SWITCHES = (
    *("create_atomic_rmw", "create_atomic_cas"),
    *("create_load", "create_masked_load", "create_store", "create_masked_store"),
)


class Turns:
    """One of the blocks runs, the others wait for their turn."""

    def __init__(self, seed: int, builder: Any) -> None:
        self._random = random.Random(seed)
        self._builder = builder
        self._events: dict[int, threading.Event] = {}
        self._current = 0
        self.errors: list[BaseException] = []
        self.switches = 0

    def run(self, fn: Callable[[], None], blocks: int) -> None:
        threads = [threading.Thread(target=self._block, args=(fn, b)) for b in range(blocks)]
        self._events = {b: threading.Event() for b in range(blocks)}
        for thread in threads:
            thread.start()
        self._give(self._random.choice(list(self._events)))
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _block(self, fn: Callable[[], None], block: int) -> None:
        self._await(block)
        try:
            fn()
        except BaseException as error:
            self.errors.append(error)
        del self._events[block]
        if self._events:
            self._give(self._random.choice(list(self._events)))

    def _give(self, block: int) -> None:
        self._current = block
        self._events[block].set()

    def _await(self, block: int) -> None:
        self._events[block].wait()
        self._events[block].clear()
        self._builder.set_grid_idx(block, 0, 0)

    def switch(self) -> None:
        """Perhaps another block goes on."""
        if len(self._events) < 2:
            return
        mine, other = self._current, self._random.choice(list(self._events))
        if other != mine:
            self.switches += 1
            self._give(other)
            self._await(mine)


@contextmanager
def stepped(monkeypatch: pytest.MonkeyPatch, seed: int) -> Generator[Turns]:
    """Kernels of this context run with all of their blocks at a time."""
    whole: Any = importlib.import_module("triton.runtime.interpreter")
    builder = whole.interpreter_builder
    turns = Turns(seed, builder)
    plain_init = whole.GridExecutor.__init__

    def init(self: Any, fn: Any, *rest: Any) -> None:
        def all_blocks(**args: Any) -> None:
            if builder.grid_idx[0] == 0:
                whole._patch_lang(fn)
                turns.run(lambda: fn(**args), builder.grid_dim[0])

        # The interpreter looks for `tl` among the globals of what it runs.
        made: Any = types.FunctionType(
            all_blocks.__code__, fn.__globals__, closure=all_blocks.__closure__
        )
        made.__signature__ = inspect.signature(fn)
        made.__annotations__ = fn.__annotations__
        plain_init(self, made, *rest)

    def switching(name: str) -> Callable[..., Any]:
        plain = getattr(whole.InterpreterBuilder, name)

        def call(self: Any, *args: Any) -> Any:
            turns.switch()
            return plain(self, *args)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(device, "runs_together", lambda: True)
        patch.setattr(whole.GridExecutor, "__init__", init)
        for name in _SWITCHES:
            patch.setattr(whole.InterpreterBuilder, name, switching(name))
        yield turns
