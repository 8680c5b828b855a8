"""Tiers: variants of a kernel, of which the first whose condition holds is taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn, cast

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
    if not _takes_one(condition):
        raise _error(
            f"a tier with the condition {condition!r}",
            "a condition is a function of the value that is selected by",
            "write tier(lambda n: n <= 2048, kernel)",
        )
    return Tier(condition, kernel, workspace)


def _takes_one(function: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # of something that is not written in Python
        return True
    return True


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
    are_tiers = all(isinstance(cast(object, v), Tier) for v in variants)
    conditions = [v.condition is not None for v in variants] if are_tiers else []
    if not variants or conditions != [True] * (len(variants) - 1) + [False]:
        raise _error(
            f"tiers {name!r}",
            "they are tiers with conditions, and one without at the end",
            "write tiers(name, tier(condition, kernel), ..., default(kernel))",
        )
    for variant in variants:
        _check(name, variant)
    return Tiers(name, variants)


def _check(name: str, variant: Tier) -> None:
    kernel, room = cast("tuple[object, object]", (variant.kernel, variant.workspace))
    if not isinstance(kernel, Kernel):
        raise _error(
            f"a tier of {name!r} is {type(kernel).__name__}",
            "a tier is a kernel",
            "pass a function decorated with @kernel",
        )
    if not isinstance(room, Workspace | None):
        raise _error(
            f"a tier of {name!r} has the workspace {room!r}",
            "it is a shape and a dtype",
            "write Workspace((64,), DType.F32)",
        )


@dataclass(frozen=True, slots=True)
class Selected:
    """The tier that a value falls into, in one iteration of a workload."""

    tiers: Tiers
    conditions: tuple[SymBool, ...]  # of all but the default
    indices: tuple[SymInt, ...] = ()  # that a task is given

    def __getitem__(self, indices: object) -> Selected:
        """The same with the indices of its task, for `emit`: `select_tier(t, n)[i, j]`."""
        return replace(self, indices=self.tiers.tiers[0].kernel.identity(indices))

    def __iter__(self) -> NoReturn:
        raise _error(
            f"a tier of {self.tiers.name} is unpacked or iterated over",
            "it stands for a kernel",
            "pass it on: emit(select_tier(tiers, value), ...)",
        )

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
    if not isinstance(variants, Tiers):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _error(
            f"select_tier of {type(variants).__name__}",
            "it selects one of several tiers",
            "pass what tiers(name, tier(condition, kernel), ..., default(kernel)) gives",
        )
    number = as_symint(value)
    asked = (each.condition for each in variants.tiers if each.condition is not None)
    return Selected(variants, tuple(as_symbool(condition(number)) for condition in asked))


def _error(what: str, why: str, fix: str) -> CompileError:
    return CompileError(Code.TIERS, what, loc=srcloc.here(), why=why, fix=fix)
