"""What Triton's interpreter needs to run these kernels as a GPU would."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


def _index(tensor: Any) -> int:
    return int(tensor.handle.data.item())


@cache
def repair() -> None:
    """It multiplies the bits of bf16 instead of the numbers, cuts bits off where GPUs round,
    spreads truth values as floats, and makes indices of arrays with one element, which NumPy does
    no longer."""
    tl: Any = importlib.import_module("triton.language")
    whole: Any = importlib.import_module("triton.runtime.interpreter")
    plain_patch, builder = whole._patch_lang_tensor, whole.InterpreterBuilder
    plain_dot, plain_cast = builder.create_dot, builder.cast_impl

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        wide = [self.cast_impl(x, tl.float32) if x.dtype.scalar.is_bf16() else x for x in (a, b)]
        return plain_dot(self, *wide, d, *rest)

    def cast_impl(self: Any, src: Any, to: Any) -> Any:
        if src.dtype.scalar.is_fp32() and to.scalar.is_bf16():
            bits = src.data.astype(ml_dtypes.bfloat16).view(np.uint16)
            return whole.TensorHandle(bits, to.scalar)
        return plain_cast(self, src, to)

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        plain_patch(tensor, scope)
        scope.set_attr(tensor, "__index__", _index)

    def compared(plain: Any) -> Any:
        def compare(self: Any, a: Any, b: Any) -> Any:
            return whole.TensorHandle(plain(self, a, b).data.astype(bool), tl.int1)

        return compare

    builder.create_dot, builder.cast_impl = create_dot, cast_impl
    for name in dir(builder):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(builder, name, compared(getattr(builder, name)))

    def convert(self: Any, src: Any, to: Any, *how: Any) -> Any:
        del how  # the only rounding there is
        return cast_impl(self, src, to)

    builder.create_fp_trunc = builder.create_fp_to_fp = convert
    whole._patch_lang_tensor = patch_lang_tensor
