"""The meaning of a plan: one task at a time, in program order, in plain Python."""

from pto_wsp.backends.reference.backend import ReferenceBackend as ReferenceBackend
from pto_wsp.backends.reference.task_hash import task_words as task_words
from pto_wsp.backends.reference.walk import DimRange as DimRange
from pto_wsp.backends.reference.walk import Region as Region
from pto_wsp.backends.reference.walk import Task as Task
