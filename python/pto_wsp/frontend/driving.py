"""What stands above the frontend: it is installed, because it cannot be imported from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _no_driver() -> Any:
    raise AssertionError("importing pto_wsp installs the driver")


_load: Callable[[], Any] = _no_driver


def install_driver(load: Callable[[], Any]) -> None:
    """Say how to load `pto_wsp.driver`: compiling workloads and kernels."""
    global _load
    _load = load


def driver() -> Any:
    return _load()
