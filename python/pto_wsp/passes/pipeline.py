"""The passes between tracing and lowering, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from pto_wsp import ir
from pto_wsp.errors import CompileError
from pto_wsp.passes.simplify import Simplify


class Pass(Protocol):
    """A rewrite that keeps the tasks, their indices and their regions."""

    name: ClassVar[str]

    def apply(self, module: ir.Module) -> ir.Module: ...


PASSES: tuple[Pass, ...] = (Simplify(),)


def run(module: ir.Module, passes: Sequence[Pass] = PASSES) -> ir.Module:
    """Applies the passes; the module is verified before the first and after each."""
    ir.verify(module)
    for step in passes:
        module = step.apply(module)
        try:
            ir.verify(module)
        except CompileError as error:
            error.add_note(f"found after pass '{step.name}'")
            raise
    return module
