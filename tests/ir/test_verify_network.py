"""Rules for channels and processes: a legal network changed in one place, and the message."""

from __future__ import annotations

import pytest

from pto_wsp import ir
from pto_wsp.errors import CompileError

LEGAL = """
module net

symbol n: extent = 4
tensor X: f32[:, :]
tensor Y: f32[:, :]
channel c: f32[:] of (8) depth 2
channel back: f32[:] of (8) depth 1 initial 1
kernel make(x: in f32[:], t: out f32[:]) python "mod.make"
kernel use(t: in f32[:], y: out f32[:]) python "mod.use"

body {
  network @ "net.py":3 {
    process first @ "net.py":4 {
      parallel i in n: dense_dyn 0:+n {
        receive back @ "net.py":5
        send c @ "net.py":6 {
          make[i](x = back[0:+8], t = c[0:+8]) @ "net.py":6
        }
      }
      close c @ "net.py":7
    }
    process second each @ "net.py":8 {
      parallel replica in second: dense 0:+2 {
        consume c as m @ "net.py":9 {
          send back {
            use(t = c[0:+8], y = back[0:+8])
          }
          use(t = c[0:+8], y = Y[m, 0:+8])
        }
      }
    }
  }
}
"""

# What is replaced, by what, and what the verifier says.
CHANGES = [
    ("depth 2", "depth 70000", "channel 'c' has depth 70000"),
    ("depth 1 initial 1", "depth 1 initial 2", "channel 'back' begins with 2 messages"),
    ("depth 2", "depth 2 latency -1", "channel 'c' has latency -1"),
    (" depth 2", "", "channel 'c' has buffers or lacks them"),
    ("c: f32[:] of (8)", "c: f32[:] of (n)", "channel 'c' has messages of no fixed size"),
    ("c: f32[:] of (8)", "c: f32[:, :] of (8)", "channel 'c' has 1 extents and rank 2"),
    ("send c @", "send X @", "'X' is no channel"),
    ("receive back", "receive c", "'c' is sent to where a message of it is held"),
    ("close c @", "receive c @", "both ends of channel 'c' are in one process"),
    ("t = c[0:+8]) @", "t = Y[i, 0:+8]) @", "kernel 'make' does not write the message of a send"),
    (
        'receive back @ "net.py":5',
        "receive back receive back",
        "another message of 'back' is received",
    ),
    ("receive back @", "close X receive back @", "'X' is no channel"),
    ("process second each", "process first each", "two processes are called 'first'"),
    ("process second each", "process main each", "two processes are called 'main'"),
    ("second: dense 0:+2", "second: dense 0:+0", "replicated process 'second' is not one loop"),
    ("x = back[0:+8]", "x = Y[i, 0:+8]", None),
    (
        "use(t = c[0:+8], y = Y[m, 0:+8])",
        "use(t = c[0:+8], y = Y[m, 0:+8]) receive back",
        "both ends of channel 'back' are in one process",
    ),
    (
        "network @",
        "network { process q { make(x = X[0, 0:+8], t = X[1, 0:+8]) } } network @",
        "a network inside of something",
    ),
    (
        "process second each",
        'process third @ "net.py":8 { receive c use(t = c[0:+8], y = Y[0, 0:+8]) } '
        "process second each",
        "processes 'third' and 'second' receive from channel 'c'",
    ),
    (
        "use(t = c[0:+8], y = Y[m, 0:+8])",
        "use(t = back[0:+8], y = Y[m, 0:+8])",
        "a message of channel 'back' that is not there",
    ),
    (
        "process second each",
        "process one { use(t = Y[0, 0:+8], y = X[0, 0:+8]) } "
        "process two { use(t = X[0, 0:+8], y = X[1, 0:+8]) } process second each",
        "processes 'one' and 'two' both touch 'X'",
    ),
    ("consume c as m", "consume c as replica", "loop variable 'replica' is bound twice"),
]


def changed(old: str, new: str) -> ir.Module:
    assert old in LEGAL
    return ir.parse(LEGAL.replace(old, new))


def test_the_network_is_legal() -> None:
    module = ir.parse(LEGAL)
    ir.verify(module)
    assert ir.parse(ir.to_text(module)) == module


@pytest.mark.parametrize(("old", "new", "message"), CHANGES)
def test_rule(old: str, new: str, message: str | None) -> None:
    module = changed(old, new)
    if message is None:
        ir.verify(module)
        return
    with pytest.raises(CompileError) as caught:
        ir.verify(module)
    assert message in caught.value.message


def test_nobody_consumes() -> None:
    text = LEGAL.replace("consume c as m", "parallel m in n: dense_dyn 0:+n")
    text = text.replace("use(t = c[0:+8], y = back[0:+8])", "use(t = X[m, 0:+8], y = back[0:+8])")
    text = text.replace("use(t = c[0:+8], y = Y[m, 0:+8])", "use(t = X[m, 0:+8], y = Y[m, 0:+8])")
    with pytest.raises(CompileError, match="nobody consumes channel 'c'"):
        ir.verify(ir.parse(text))


def test_processes_that_no_channel_joins_collide() -> None:
    other = "process other { use(t = X[0, 0:+8], y = Y[0, 0:+8]) } process second each"
    both = LEGAL.replace("process second each", other).replace("y = Y[m,", "y = Y[0,")
    with pytest.raises(CompileError, match="'other' and 'second' both touch 'Y'") as caught:
        ir.verify(ir.parse(both))
    assert caught.value.code.value == "PTO520"
    ir.verify(ir.parse(LEGAL.replace("process second each", other)))  # perhaps apart
