"""Policies of other packages, found by name.

A package registers a function under the entry point group `pto_wsp.policies`; it takes what the
user passes and returns a policy, made of the policies and keys that there are. So what it says is
enforced as those are, and travels in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError

GROUP = "pto_wsp.policies"

Policy = TypeVar("Policy")


def named_policy(
    kind: type[Policy], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Policy:
    """What the function registered under that name gives: a policy of that kind."""
    form = f"{kind.__name__}.named({name!r})"
    function = _load(form, _find(form, name))
    policy = function(*args, **kwargs)
    if isinstance(policy, kind):
        return policy
    raise _error(
        form,
        f"it gives {policy!r}",
        f"it has to return a {kind.__name__}, or be used where its policy fits",
    )


def _find(form: str, name: str) -> EntryPoint:
    # Asked each time: a package may be installed while a notebook is open.
    found = entry_points(group=GROUP)
    # One that is found in several places of sys.path is one.
    matching = list({point.value: point for point in found if point.name == name}.values())
    if len(matching) == 1:
        return matching[0]
    if matching:
        owners = ", ".join(sorted(point.value for point in matching))
        raise _error(form, f"several packages register that name: {owners}", "uninstall one")
    known = ", ".join(sorted({point.name for point in found})) or "none"
    raise _error(
        form,
        f"no installed package has an entry point of that name in {GROUP!r}",
        f"install the package that has it; there are: {known}",
    )


def _load(form: str, point: EntryPoint) -> Callable[..., Any]:
    try:
        function = point.load()
    except (ImportError, AttributeError) as error:
        why = f"{point.value} cannot be loaded: {error}"
        raise _error(form, why, "repair that package") from error
    if callable(function):
        return function
    raise _error(form, f"{point.value} is not a function", "register one that returns a policy")


def _error(what: str, why: str, fix: str) -> ScheduleError:
    return ScheduleError(Code.DIRECTIVE_VALUE, what, loc=srcloc.here(), why=why, fix=fix)
