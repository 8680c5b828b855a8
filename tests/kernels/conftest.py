"""Kernel tests compile into a folder of their own, with the compiler of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty kernel cache; no setting of the caller's environment acts."""
    for name in ("PTO_WSP_CXX", "PTO_WSP_CXXFLAGS", "PTO_WSP_CACHE_MAX_MB", "PTO_WSP_DEBUG", "CXX"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", str(folder))
    return folder
