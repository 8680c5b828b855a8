"""What functions have in common that make workloads for given sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pto_wsp.workloads.refusals import refused

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
                raise refused(
                    f"{factory.__name__} is made for numbers and names, not for {value!r}",
                    "one workload is kept for each of them, so they have to be hashable",
                    "pass numbers, and tuples instead of lists",
                ) from None
        return known(*args, **kwargs)

    return make
