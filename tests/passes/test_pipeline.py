"""The driver of the passes verifies what goes in and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from pto_wsp import ir
from pto_wsp.errors import CompileError
from pto_wsp.passes import run
from pto_wsp.passes.pipeline import PASSES
from tests.ir.samples import SAMPLES, at, loc

WAVE = SAMPLES["wave"]()


@dataclass(frozen=True)
class Forget:
    """Drops the tensors, which no legal pass does."""

    name: ClassVar[str] = "forget"

    def apply(self, module: ir.Module) -> ir.Module:
        return replace(module, tensors=())


def test_names_of_the_passes() -> None:
    assert [step.name for step in PASSES] == ["simplify"]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_pass(name: str) -> None:
    ir.verify(run(SAMPLES[name]()))


def test_input_is_verified() -> None:
    with pytest.raises(CompileError, match="is not declared") as caught:
        run(replace(WAVE, tensors=()), ())
    assert not hasattr(caught.value, "__notes__")


def test_output_of_each_pass_is_verified() -> None:
    with pytest.raises(CompileError, match="is not declared") as caught:
        run(WAVE, (Forget(),))
    assert caught.value.__notes__ == ["found after pass 'forget'"]


def test_folding_finds_errors_of_the_user() -> None:
    zero = ir.Binary(ir.BinaryOp.SUB, ir.Const(1), ir.Const(1))
    call = ir.Call("f", (), (ir.Region("X", (replace(at(0), dropped=False, step=zero),)),), loc(7))
    param = ir.ParamDecl("x", ir.Mode.IN, WAVE.tensors[0].dtype, 1)
    kernel = ir.KernelDecl("f", (param,), ir.BodyForm.PYTHON, "m.f")
    tensor = replace(WAVE.tensors[0], rank=1)
    module = ir.Module("m", (), (tensor,), (kernel,), (call,))
    with pytest.raises(CompileError, match="dimension 0 has step 0") as caught:
        run(module)
    assert caught.value.loc == loc(7)
