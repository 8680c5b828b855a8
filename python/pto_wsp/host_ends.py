"""Channels with the host at one end: what the parts of such an end are called in a plan."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp.dtypes import DType


@dataclass(frozen=True, slots=True)
class HostEnd:
    """`count` is how many messages one run takes or gives."""

    channel: str
    sends: bool  # the host does
    shape: tuple[int, ...]
    dtype: DType
    count: int

    @property
    def array(self) -> str:
        """The name to which the messages of a run are bound."""
        return f"{self.channel}_host"

    @property
    def number(self) -> str:
        """How many there are, where the host sends."""
        return f"{self.channel}_count"

    @property
    def seen(self) -> str:
        """Which of them are there, where it receives."""
        return f"{self.channel}_seen"
