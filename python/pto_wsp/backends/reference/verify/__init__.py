"""Finding races: before a run, or from the trace of one."""

from pto_wsp.backends.reference.verify.full import verify_full as verify_full
from pto_wsp.backends.reference.verify.replay import prepare_replay as prepare_replay
