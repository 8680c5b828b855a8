"""Channels that end at the host: messages that are handed in before a run and taken out after it,
or while it goes on.

Each run gets arrays of its own, so that the next messages can be handed in while it reads the last
ones. In the plan a port is a process that copies messages between such an array and its channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ChannelError, ExecutionError
from pto_wsp.host_ends import HostEnd
from pto_wsp.runtime.run_errors import run_error

_POLL_S = 0.0002
_ENDED = "messages come from runs, and all that were started have given theirs"
Array: TypeAlias = np.ndarray[Any, Any]
Handover: TypeAlias = Callable[[Callable[[], bool]], None]


@dataclass(eq=False, slots=True)
class Batch:
    """The messages of one run, of which `taken` have been taken."""

    messages: Array
    seen: Array
    taken: int = 0
    done: Callable[[], bool] = field(default=lambda: False)  # until a run has it

    @property
    def ready(self) -> bool:
        return self.taken < len(self.seen) and bool(self.seen[self.taken])


class Port:
    """What a program has for the host's end of a channel."""

    def __init__(self, spec: HostEnd) -> None:
        self.spec = spec
        self._waiting: list[Array] = []  # to be handed in
        self._closed = False
        self._batches: list[Batch] = []

    def __repr__(self) -> str:
        verb = "sends to" if self.spec.sends else "receives from"
        return f"<port: the host {verb} channel {self.spec.channel}>"

    # --- the host sends ---

    def try_send(self, value: Any) -> None:
        """Hands a message in, of which there is a copy. ChannelFull if as many wait for the next
        run as the channel has buffers, ChannelClosed after close()."""
        self._check_direction(sends=True)
        if self._closed:
            why = "close() was called: no more messages are handed in"
            raise self._error(Code.CHANNEL_CLOSED, "is closed", why)
        if len(self._waiting) == self.spec.count:
            raise self._error(Code.CHANNEL_FULL, f"has {self.spec.count} messages waiting")
        message = np.empty(self.spec.shape, self.spec.dtype.numpy)
        message[...] = value
        self._waiting.append(message)

    def close(self) -> None:
        """No more messages are handed in."""
        self._check_direction(sends=True)
        self._closed = True

    # --- the host receives ---

    def query(self) -> bool:
        """Whether a message can be taken now; of a port to which the host sends, whether there is
        room for one."""
        if self.spec.sends:
            return not self._closed and len(self._waiting) < self.spec.count
        return self._first() is not None

    def receive(self, timeout: float | None = None) -> Array:
        """The next message. Waits while a run goes on that may send it, at most `timeout` seconds;
        ChannelClosed if none is left and nothing runs."""
        self._check_direction(sends=False)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = all(batch.done() for batch in self._batches)  # asked before looking
            batch = self._first()
            if batch is not None:
                batch.taken += 1
                return batch.messages[batch.taken - 1]
            if ended:
                raise self._error(Code.CHANNEL_CLOSED, "has no message, and nothing runs", _ENDED)
            if deadline is not None and time.monotonic() >= deadline:
                why = "receive(timeout=...) waits no longer than that"
                raise self._error(Code.CHANNEL_CLOSED, f"gave no message in {timeout} s", why)
            time.sleep(_POLL_S)

    def __iter__(self) -> Iterator[Array]:
        """The messages that are there or come from runs that go on."""
        while True:
            try:
                message = self.receive()
            except ChannelError:
                return
            yield message

    def _first(self) -> Batch | None:
        """The first run whose next message is there; those that are used up are forgotten."""
        while self._batches:
            batch = self._batches[0]
            ended = batch.done()  # asked before looking
            if batch.ready:
                return batch
            if not ended:
                return None
            self._batches.pop(0)
        return None

    # --- the program ---

    def bind(self) -> tuple[dict[str, object], Handover]:
        """What the next run has for this port. Nothing is given away before the run has begun."""
        spec = self.spec
        messages = np.zeros((spec.count, *spec.shape), spec.dtype.numpy)
        if spec.sends:
            count = len(self._waiting)
            for number, message in enumerate(self._waiting):
                messages[number] = message

            def begun(_: Callable[[], bool]) -> None:
                del self._waiting[:count]

            return {spec.array: messages, spec.number: count}, begun
        batch = Batch(messages, np.zeros(spec.count, np.bool_))

        def begins(done: Callable[[], bool]) -> None:
            batch.done = done
            self._batches.append(batch)

        return {spec.array: batch.messages, spec.seen: batch.seen}, begins

    def _check_direction(self, *, sends: bool) -> None:
        if self.spec.sends is not sends:
            does = "sends" if self.spec.sends else "receives"
            raise ChannelError(
                Code.CHANNEL,
                f"the host {does} at channel {self.spec.channel!r}",
                loc=srcloc.here(),
                why="processes have the other end",
                fix="use the port of another channel",
            )

    def _error(self, code: Code, what: str, why: str | None = None) -> ExecutionError:
        return run_error(code, f"channel {self.spec.channel!r} {what}", loc=srcloc.here(), why=why)


def bind_ports(ports: Iterable[Port]) -> tuple[dict[str, object], Handover]:
    """What the next run has for all of them, and what to call with its `done` once it has begun."""
    bound = [port.bind() for port in ports]

    def begun(done: Callable[[], bool]) -> None:
        for _, each in bound:
            each(done)

    return {name: value for values, _ in bound for name, value in values.items()}, begun
