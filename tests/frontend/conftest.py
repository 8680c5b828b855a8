"""What the tests of refusals share."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from pto_wsp.errors import CompileError

Refused = Callable[..., CompileError]


@pytest.fixture
def refused() -> Refused:
    """Runs a case that must be refused: with the error's exact type and message, at the line of the
    case that is marked `#!`, and with a reason and a way out."""

    def check(
        case: Callable[[], object], message: str, error: type[CompileError] = CompileError
    ) -> CompileError:
        with pytest.raises(CompileError) as raised:
            case()
        found = raised.value
        assert type(found) is error
        assert found.message == message
        assert found.why
        assert found.fix
        lines, first = inspect.getsourcelines(case)
        marked = [first + at for at, line in enumerate(lines) if "#!" in line]
        assert found.loc is not None
        assert [(found.loc.file, found.loc.line)] == [
            (inspect.getsourcefile(case), line) for line in marked
        ]
        return found

    return check
