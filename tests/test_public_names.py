"""`from pto_wsp import *` gives everything that users write with."""

from __future__ import annotations

from types import ModuleType

import pto_wsp


def test_all_public_names_are_listed() -> None:
    names = {name for name in vars(pto_wsp) if not name.startswith("_")}
    own = {name for name in names if not isinstance(getattr(pto_wsp, name), ModuleType)}
    own -= {"annotations", "TYPE_CHECKING", "Any"}
    assert set(pto_wsp.__all__) == own | {"Plan", "Program", "launch", "pto"}
    assert len(set(pto_wsp.__all__)) == len(pto_wsp.__all__)


def test_a_star_import_gives_them() -> None:
    found: dict[str, object] = {}
    exec("from pto_wsp import *", found)
    assert set(pto_wsp.__all__) <= set(found)
    assert found["launch"] is pto_wsp.launch
    assert found["pto"] is pto_wsp.pto
