"""Text form of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pto_wsp.plan.plan import Plan


def disassemble(plan: Plan) -> str:
    """The whole plan as text."""
    return f"plan {plan.plan_id}\n"
