"""From the IR as it was traced to a plan."""

from pto_wsp.passes.lower import lower as lower
from pto_wsp.passes.pipeline import run as run
