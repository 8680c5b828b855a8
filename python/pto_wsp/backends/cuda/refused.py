"""What is said of a directive that a GPU does not keep."""

from __future__ import annotations

from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.plan import Plan, Section
from pto_wsp.plan.disasm import directive_texts


def refusal(
    plan: Plan, entry: int, why: str, fix: str, code: Code = Code.DIRECTIVE_NOT_ENFORCED
) -> ScheduleError:
    """`entry` is that of the schedule; `fix` is the nearest that is kept."""
    return ScheduleError(
        code,
        f"the cuda target cannot enforce {directive_texts(plan)[entry]}",
        loc=plan.loc(Section.SCHEDULE, entry),
        why=why,
        fix=f"{fix}; or use target='cpu_sim'" if code is Code.DIRECTIVE_NOT_ENFORCED else fix,
    )
