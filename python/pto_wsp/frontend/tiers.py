"""Tiers: variants of a kernel, of which the first whose condition holds is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from pto_wsp import srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.kernels import Kernel
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    SymBool,
    SymInt,
    as_symbool,
    as_symint,
    select,
)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Room that each task of a tier has for itself: what its kernel takes as `workspace`."""

    shape: tuple[IntLike, ...]
    dtype: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Tier:
    """One variant; without a condition, the default."""

    condition: Callable[[SymInt], BoolLike] | None
    kernel: Kernel
    workspace: Workspace | None = None


def tier(
    condition: Callable[[SymInt], BoolLike], kernel: Kernel, workspace: Workspace | None = None
) -> Tier:
    """`tier(lambda n: n <= 2048, decode_2k)`."""
    return Tier(condition, kernel, workspace)


def default(kernel: Kernel, workspace: Workspace | None = None) -> Tier:
    """The last tier, for what no condition before it holds for."""
    return Tier(None, kernel, workspace)


@dataclass(frozen=True, slots=True)
class Tiers:
    """Conditions are tried from top to bottom."""

    name: str
    tiers: tuple[Tier, ...]


def tiers(name: str, *variants: Tier) -> Tiers:
    """`tiers("decode", tier(lambda n: n <= 2048, decode_2k), default(decode_8k))`."""
    loc = srcloc.here()
    are_tiers = all(isinstance(cast(object, v), Tier) for v in variants)
    conditions = [v.condition is not None for v in variants] if are_tiers else []
    if not variants or conditions != [True] * (len(variants) - 1) + [False]:
        raise CompileError(
            Code.TIERS,
            f"tiers {name!r}",
            loc=loc,
            why="they are tiers with conditions, and one without at the end",
            fix="write tiers(name, tier(condition, kernel), ..., default(kernel))",
        )
    for variant in variants:
        if not isinstance(variant.kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CompileError(
                Code.TIERS,
                f"a tier of {name!r} is {type(variant.kernel).__name__}",
                loc=loc,
                why="a tier is a kernel",
                fix="pass a function decorated with @kernel",
            )
    return Tiers(name, variants)


@dataclass(frozen=True, slots=True)
class Selected:
    """The tier that a value falls into, in one iteration of a workload."""

    tiers: Tiers
    conditions: tuple[SymBool, ...]  # of all but the default
    indices: tuple[SymInt, ...] = ()  # that a task is given

    def __getitem__(self, indices: object) -> Selected:
        """The same with the indices of its task, for `emit`: `select_tier(t, n)[i, j]`."""
        return replace(self, indices=self.tiers.tiers[0].kernel.identity(indices))

    @property
    def index(self) -> SymInt:
        """Its number from the top."""
        number = as_symint(len(self.conditions))
        for position in reversed(range(len(self.conditions))):
            number = as_symint(select(self.conditions[position], position, number))
        return number


def select_tier(variants: Tiers, value: IntLike) -> Selected:
    """The first tier whose condition holds for the value; `emit` takes it as a kernel, and its
    `index` is its number."""
    number = as_symint(value)
    asked = (each.condition for each in variants.tiers if each.condition is not None)
    return Selected(variants, tuple(as_symbool(condition(number)) for condition in asked))
