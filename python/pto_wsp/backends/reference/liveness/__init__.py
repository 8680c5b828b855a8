"""What can be said about the end of a network before it runs."""

from pto_wsp.backends.reference.liveness.check import check_liveness as check_liveness
from pto_wsp.backends.reference.liveness.depths import min_depths as min_depths
