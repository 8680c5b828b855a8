"""Plans: the bytes between the compiler and every target.

`Plan` is the finished article, `PlanBuilder` makes one; enums and records mirror the tables in
core/include/ptowsp. docs/bytecode.md describes the format.
"""

from __future__ import annotations

from pto_wsp.plan.assemble import Argument as Argument
from pto_wsp.plan.assemble import ExprArg as ExprArg
from pto_wsp.plan.assemble import PlanBuilder as PlanBuilder
from pto_wsp.plan.enums import *  # noqa: F403
from pto_wsp.plan.hashing import abi_hash as abi_hash
from pto_wsp.plan.hashing import name_hash as name_hash
from pto_wsp.plan.hashing import path_hash as path_hash
from pto_wsp.plan.plan import Plan as Plan
from pto_wsp.plan.reader import KernelBodyData as KernelBodyData
from pto_wsp.plan.record import Record as Record
from pto_wsp.plan.record import SectionClass as SectionClass
from pto_wsp.plan.record import TableRecord as TableRecord
from pto_wsp.plan.records import *  # noqa: F403
