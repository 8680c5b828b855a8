"""Results of ready workloads are compared with torch; tests that need none run without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pto_wsp import driver
from pto_wsp.frontend import trace


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_torch() -> Iterator[None]:
    """Its matrices are tiny here, and others want the cores: a second thread would only wait."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been traced, lowered or loaded so far: grows whenever anything is."""
    done: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(trace, "run", counted("trace", trace.run))
    for name in ("lower", "load", "load_kernels"):
        monkeypatch.setattr(driver, name, counted(name, getattr(driver, name)))
    return done
