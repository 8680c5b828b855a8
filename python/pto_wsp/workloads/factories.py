"""What functions have in common that make workloads for given sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")


def made_once(factory: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same sizes give the same workload: it is traced and compiled once."""
    known = functools.cache(factory)

    @functools.wraps(factory)
    def make(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        for value in (*args, *kwargs.values()):
            try:
                hash(value)
            except TypeError:
                raise ValueError(
                    f"{factory.__name__} is made for numbers and names, not for {value!r}"
                ) from None
        return known(*args, **kwargs)

    return make


def check_counts(workload: str, **counts: object) -> None:
    """ValueError for a number of which there has to be at least one."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{workload}: {name} is {count!r}, and has to be at least 1")
