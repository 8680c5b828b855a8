"""The text form: it reads well, and it reads back."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_ir import TileKernel, check, from_text, simplify, to_text
from tests.conftest import Golden
from tests.kernels.tile.samples import kernels, random_kernels


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "flash"])
def test_kernel(name: str, golden: Golden) -> None:
    golden.check(None, to_text(kernels()[name], locs=False))


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "flash"])
def test_places_are_the_users_lines(name: str) -> None:
    text = to_text(kernels()[name], folders=False)
    assert '@ "samples.py":' in text
    assert from_text(text) == kernels()[name]


@given(random_kernels())
def test_round_trip(kernel: TileKernel) -> None:
    check(kernel)
    text = to_text(kernel)
    back = from_text(text)
    assert back == kernel
    assert to_text(back) == text  # names and places too, which do not take part in comparisons
    short = simplify(back)
    check(short)
    assert from_text(to_text(short)) == short


@given(random_kernels(), st.randoms(use_true_random=False))
def test_damaged_text_is_refused_or_read(kernel: TileKernel, rng: random.Random) -> None:
    """Never another exception, whatever the bytes."""
    text = list(to_text(kernel))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(text))
        text[place] = rng.choice(
            ["", "9", "%", "(", ")", "{", "}", "=", "-", "?", "x", '"', "\n", "é"]
        )
    with contextlib.suppress(CompileError):
        check(from_text("".join(text)))


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(CompileError):
        from_text(text)


HEAD = "tile kernel k(%0: in f32[:, :], %1: i64, %2: f32) {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile kernel", "expected a name, found the end of the text"),
        ("tile kernel k() { } x", "expected the end of the text, found x"),
        (HEAD + "%3: f32 = frob %2\n}", "there is no operation frob"),
        (HEAD + "%3: f32 = neg %9\n}", "%9 is used before it is defined"),
        (HEAD + "%3: f32 = neg %3\n}", "%3 is used before it is defined"),
        (HEAD + "%2: f32 = neg %2\n}", "%2 is defined twice"),
        (HEAD + "%3: f32 = neg %2.x\n}", "%2 is called nothing elsewhere"),
        (HEAD + "%3: f33 = neg %2\n}", "expected a dtype such as f32, found f33"),
        (HEAD + "%3: f32 = neg %2", "expected an operation, found the end of the text"),
        (HEAD + "$\n}", "unexpected character '$'"),
        (HEAD + '%3: f32 = neg %2 @ "\\q":1\n}', "unknown escape \\q in a string"),
        (HEAD + '%3: f32 = neg %2 @ "\\ud800":1\n}', "\\ud800 is not a character"),
        (HEAD + "%3: f32 = neg %2, axis=1.5.5\n}", "unexpected character '.'"),
        (HEAD + "%3: f32[1.5, 2] = neg %2\n}", "expected a whole number"),
        (HEAD + "%" + "9" * 30 + ": f32 = neg %2\n}", "a value has a number of at most 9 digits"),
        (HEAD + "%3: f32 = const value=" + "9" * 500 + "\n}", "more than 400 digits"),
        ("tile kernel k(%0: in f32[4, :]) {\n}", "all extents are known, or none"),
        (HEAD + "when %1 do () {\n" * 70, "blocks nested more than 64 deep"),
    ],
)
def test_refused_text(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        from_text(text, "body.txt")
    assert message in caught.value.message
    assert caught.value.loc is not None
    assert caught.value.loc.file == "body.txt"
