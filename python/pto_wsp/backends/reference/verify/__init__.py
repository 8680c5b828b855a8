"""Finding races: before a run, or from the trace of one."""

from pto_wsp.backends.reference.verify.full import verify_full as verify_full
from pto_wsp.backends.reference.verify.oracle import Oracle as Oracle
from pto_wsp.backends.reference.verify.record import Bundle as Bundle
from pto_wsp.backends.reference.verify.record import Event as Event
from pto_wsp.backends.reference.verify.record import Recorder as Recorder
from pto_wsp.backends.reference.verify.replay import prepare_replay as prepare_replay
