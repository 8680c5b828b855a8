"""Work descriptors as the walk finds them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.expr import ExprFault
from pto_wsp.backends.reference.walk import Task, Walk
from pto_wsp.error_codes import Code
from pto_wsp.plan import Descriptor, Plan
from pto_wsp.runtime.descriptors import ABSENT, Cell, Layout


def descriptor_words(bound: BoundPlan, layout: Layout) -> npt.NDArray[np.uint32]:
    walk = Walk(bound)
    rows = [
        [_word(bound.plan, walk, task, Cell(kind), arg) for kind, arg in layout.cells[task.site]]
        for task in walk.tasks()
    ]
    return np.array(rows, np.uint32).reshape(len(rows), layout.words)


def _word(plan: Plan, walk: Walk, task: Task, kind: Cell, arg: int) -> int:
    """One number of the task that the walk has just come to."""
    match kind:
        case Cell.CONSTANT:
            return arg
        case Cell.LOOP:
            value, name = task.indices[arg], f"the index of loop {arg}"
        case Cell.FIELD:
            record = plan.records(Descriptor)[arg]
            name = f"descriptor field {plan.string(record.name)!r}"
            value = walk.value_at(task, record.expr)
        case Cell.WORKSPACE_LOW | Cell.WORKSPACE_HIGH:
            return ABSENT  # every temporary is an array of its own
    if 0 <= value < ABSENT:
        return value
    what = f"{name} is {value}, which is no 32-bit number without sign,"
    raise walk.task_error(task.site, task.indices, ExprFault(Code.ARITHMETIC, what))
