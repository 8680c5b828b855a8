"""Environment variables: one table, typed, with errors that say what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_wsp import config
from pto_wsp.errors import PtoError


def test_table_is_complete() -> None:
    members = [v for v in vars(config).values() if isinstance(v, config.Variable)]
    assert members == list(config.VARIABLES)
    for variable in config.VARIABLES:
        assert variable.name.startswith("PTO_WSP_")
        assert variable.doc.endswith(".")
        assert variable.default_text


@pytest.mark.parametrize("text", [None, "", "  "])
def test_unset_and_empty_give_the_default(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("PTO_WSP_CACHE_MAX_MB", raising=False)
    if text is not None:
        monkeypatch.setenv("PTO_WSP_CACHE_MAX_MB", text)
    assert config.CACHE_MAX_MB.get() == 512


def test_values_are_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_NUM_THREADS", "3")
    assert config.NUM_THREADS.get() == 3
    monkeypatch.setenv("PTO_WSP_NUM_THREADS", "4")
    assert config.NUM_THREADS.get() == 4


def test_commands_split_like_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_CXX", "ccache 'my g++'")
    assert config.CXX.get() == ("ccache", "my g++")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", "~/kernels")
    assert config.CACHE_DIR.get() == tmp_path / "kernels"
    monkeypatch.delenv("PTO_WSP_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert config.CACHE_DIR.get() == tmp_path / ".cache" / "pto_wsp"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert config.CACHE_DIR.get() == tmp_path / "xdg" / "pto_wsp"
    monkeypatch.setattr("sys.platform", "darwin")
    assert config.CACHE_DIR.get() == tmp_path / "Library" / "Caches" / "pto_wsp"


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        (config.CACHE_MAX_MB, "many", "it is not an integer"),
        (config.CACHE_MAX_MB, "0", "it is outside 1 .. 1048576"),
        (config.NUM_THREADS, "-1", "it is outside 0 .. 4096"),
        (config.DEBUG, "6", "it is outside 0 .. 5"),
        (config.CXX, "'g++", "it does not split into words: no closing quotation"),
        (
            config.CACHE_DIR,
            "kernels",
            "the path is relative, so it would depend on the current folder",
        ),
    ],
)
def test_bad_values(
    monkeypatch: pytest.MonkeyPatch, variable: config.Variable[object], text: str, why: str
) -> None:
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(PtoError) as caught:
        variable.get()
    assert str(caught.value) == (
        f"[PTO901] environment variable {variable.name} is {text!r}: expected {variable.expected}\n"
        f"  why: {why}\n"
        f"  fix: set {variable.name} to {variable.expected}, or unset it (default: "
        f"{variable.default_text})"
    )
