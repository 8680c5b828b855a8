"""Every test here runs on every registered target."""

from __future__ import annotations

import pytest

from pto_wsp.backends import registry


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param
