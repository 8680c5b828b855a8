"""Errors about what ready workloads are made with, at the user's line."""

from __future__ import annotations

from dataclasses import replace

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.srcloc import SrcLoc


def refused(message: str, *, why: str, fix: str) -> CompileError:
    """For an argument that no workload can be made with."""
    return CompileError(Code.WORKLOAD_ARGUMENT, message, loc=caller(), why=why, fix=fix)


def caller() -> SrcLoc | None:
    """The user's line alone: where in the package an argument was found wrong helps nobody."""
    loc = srcloc.here()
    return None if loc is None else replace(loc, inside=None)
