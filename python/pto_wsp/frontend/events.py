"""Events: messages without content, which say that tasks have ended."""

from __future__ import annotations

from pto_wsp.frontend.annotations import In, Out
from pto_wsp.frontend.channels import Event, checked, name_of, receive, send_call
from pto_wsp.frontend.kernels import Unsent, kernel
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.trace import current


@kernel
def recorded(signal: Out[Tensor]) -> None:
    signal[...] = True


@kernel
def awaited(signal: In[Tensor]) -> None: ...


def record(event: Event) -> None:
    """All tasks before it in this body have ended: whoever synchronizes with the event may go on.
    A process goes on behind it when somebody waits for the event."""
    tracer = current("record(...)")
    name = name_of(tracer, checked("record(...)", event, event=True))
    waited = tracer.earlier_calls()
    unsent = Unsent(recorded, tracer, "signal", (), (), {}, waited)
    send_call(tracer, name, event, unsent)


def synchronize(event: Event) -> None:
    """Everything behind it in this body waits for the event's next record."""
    tracer = current("synchronize(...)")
    message = receive(checked("synchronize(...)", event, event=True))
    tracer.block.gates.append(awaited(signal=message).label)
