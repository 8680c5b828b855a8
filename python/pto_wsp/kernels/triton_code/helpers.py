"""Functions that generated Triton code shares. They are text: nothing here needs Triton.

What they compute is what `numpy_ops` says, also where Triton's own functions differ: NaN in the
largest and smallest, division rounding down, conversions that stop at the ends of the range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HEADER = """\
import triton
import triton.language as tl
"""

_TEXTS = r'''
@triton.jit
def within(room, size: tl.constexpr):
    """How many of `size` elements there is room for."""
    return tl.minimum(tl.maximum(room, 0), size).to(tl.int32)


@triton.jit
def room_at(extent, at, size: tl.constexpr):
    """How many of `size` elements from `at` on there are; none in front of the first."""
    return tl.where(at < 0, 0, within(extent - at, size)).to(tl.int32)


@triton.jit
def fault_if(fault, bad, number: tl.constexpr):
    tl.store(fault, number, mask=bad)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def larger_f64(a, b):
    return tl.where((a != a) | (a > b), a, b)


@triton.jit
def smaller_f64(a, b):
    return tl.where((a != a) | (a < b), a, b)


@triton.jit
def larger_int(a, b):
    return tl.maximum(a, b)


@triton.jit
def smaller_int(a, b):
    return tl.minimum(a, b)


@triton.jit
def divided(a, b):
    """a / b, rounded once."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def reciprocal(x):
    if x.dtype == tl.float32:
        return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)
    else:
        return 1.0 / x


@triton.jit
def square_root(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def sigmoid(x):
    return reciprocal(1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    return x * sigmoid(x)


@triton.jit
def gelu(x):
    return x * ((1.0 + tl.erf(x * 0.7071067811865476)) * 0.5)


@triton.jit
def tanh(x):
    """By an odd polynomial near 0, by exponentials elsewhere."""
    size = tl.abs(x)
    square = x * x
    far = 1.0 - 2.0 * reciprocal(tl.exp(2.0 * size) + 1.0)
    far = tl.where(x < 0, -far, far)
    if x.dtype == tl.float32:
        p = -5.70498872745e-3 * square + 2.06390887954e-2
        p = p * square - 5.37397155531e-2
        p = p * square + 1.33314422036e-1
        p = p * square - 3.33332819422e-1
        near = p * square * x + x
    else:
        p = -9.64399179425052238628e-1 * square - 9.92877231001918586564e1
        p = p * square - 1.61468768441708447952e3
        q = square + 1.12811678491632931402e2
        q = q * square + 2.23548839060100448583e3
        q = q * square + 4.84406305325125486048e3
        near = x * (square * (p / q)) + x
    return tl.where(size < 0.625, near, far)


@triton.jit
def power(a, b):
    """a to the power of b, by logarithms in f64; the sign by whether b is odd."""
    x = a.to(tl.float64)
    y = b.to(tl.float64)
    size = tl.abs(x)
    finite = tl.where(size == 0, 1.0, size)
    exact = y * tl.log2(finite)
    found = tl.exp2(exact)
    found = tl.where(size == 0, tl.where(y > 0, 0.0, float("inf")), found)
    whole = tl.floor(y) == y
    half = y * 0.5
    odd = whole & (tl.floor(half) != half)
    negative = (x < 0) | ((x == 0) & (1.0 / x < 0))
    found = tl.where(negative & odd, found * -1.0, found)
    # A negative number has powers of whole exponents only; the infinities count as whole.
    found = tl.where((x < 0) & (size < float("inf")) & (whole == 0), float("nan"), found)
    found = tl.where((size == 1.0) & (tl.abs(y) == float("inf")), 1.0, found)
    found = tl.where((x != x) | (y != y), float("nan"), found)
    found = tl.where((y == 0) | (x == 1.0), 1.0, found)
    return found.to(a.dtype)


@triton.jit
def floordiv(a, b):
    """a / b rounded down; 0 where b is 0, and the least integer by -1 wraps around."""
    if a.dtype.is_int_unsigned():
        return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b)).to(a.dtype)
    else:
        plain = (b != 0) & (b != -1)
        by = tl.where(plain, b, 1).to(a.dtype)
        cut = a // by
        left = a - cut * by
        down = cut - ((left != 0) & ((left < 0) != (by < 0))).to(a.dtype)
        return tl.where(b == 0, 0, tl.where(b == -1, 0 - a, down)).to(a.dtype)


@triton.jit
def mod(a, b):
    """What floordiv leaves."""
    return tl.where(b == 0, 0, a - floordiv(a, b) * b).to(a.dtype)


@triton.jit
def rounded_to_even(x):
    below = tl.floor(x)
    rest = x - below
    half = below * 0.5
    odd = tl.floor(half) != half
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    return tl.where(up, below + 1.0, below)


@triton.jit
def rounded_to_zero(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def saturated(
    x,
    first: tl.constexpr,
    beyond: tl.constexpr,
    low: tl.constexpr,
    high: tl.constexpr,
    to: tl.constexpr,
    by: tl.constexpr,
):
    """A whole number as an integer between `low` and `high`, by way of a wider one; NaN is 0.
    `first` and `beyond` are the same ends as floats."""
    inside = (x >= first) & (x < beyond)
    plain = tl.where(inside, x, 0.0).to(by).to(to)
    ends = tl.where(x < 0, tl.full(x.shape, low, to), tl.full(x.shape, high, to))
    return tl.where(inside | (x != x), plain, ends)


@triton.jit
def bf16_of_f64(x):
    """Rounded once: by way of an f32 that is odd wherever bits were lost."""
    near = x.to(tl.float32)
    back = near.to(tl.float64)
    bits = near.to(tl.int32, bitcast=True)
    even = (back != x) & ((bits & 1) == 0) & (x == x)
    odd = tl.where(tl.abs(x) > tl.abs(back), bits + 1, bits - 1)
    return tl.where(even, odd, bits).to(tl.float32, bitcast=True).to(tl.bfloat16)


@triton.jit
def f64_of_int64(x):
    """An integer of 64 bits as an f64 that rounds to bf16 as the integer does: where bits are lost,
    the last one that is kept is set."""
    size = tl.where(x < 0, 0 - x, x).to(tl.uint64)
    lost = (size & 0xFFF) != 0
    sticky = (size & 0xFFFFFFFFFFFFF000) | tl.where(lost, 0x800, 0).to(tl.uint64)
    size = tl.where((size >> 53) != 0, sticky, size)
    found = size.to(tl.float64)
    return tl.where(x < 0, -found, found)


@triton.jit
def product_by_terms(a, b, depth: tl.constexpr):
    """A product of integers that no matrix unit takes, one inner element at a time."""
    i = tl.arange(0, b.shape[0])[:, None]
    j = tl.arange(0, a.shape[1])[None, :]
    found = tl.zeros([a.shape[0], b.shape[1]], a.dtype)
    for k in tl.range(0, depth):
        left = tl.sum(tl.where(j == k, a, 0).to(a.dtype), 1, keep_dims=True).to(a.dtype)
        right = tl.sum(tl.where(i == k, b, 0).to(a.dtype), 0, keep_dims=True).to(a.dtype)
        found += left * right
    return found


@triton.jit
def first_of(hit, lane, axis: tl.constexpr, none: tl.constexpr):
    """The least lane where `hit` holds; 0 if there is none."""
    found = tl.min(tl.where(hit, lane, none), axis, keep_dims=True)
    return tl.where(found == none, 0, found)


@triton.jit
def order_key_f32(x):
    """Integers from 0 to 2^32 - 1 that order like floats; NaN is the largest."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True).to(tl.int64)
    key = tl.where(bits < 0, -1 - (bits + 0x80000000), bits) + 0x80000000
    return tl.where(x != x, 0xFFFFFFFF, key)


@triton.jit
def order_key_f64(x):
    """Integers that order like floats; NaN is the largest."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)
    key = tl.where(bits < 0, (bits ^ 0x7FFFFFFFFFFFFFFF), bits)
    return tl.where(x != x, 0x7FFFFFFFFFFFFFFF, key)


@triton.jit
def order_by_key(key, inside, lane):
    """The places of the elements of each row, largest key first and the first of equal ones first;
    what is not inside comes last. Keys are below 2^32."""
    packed = (key << 30) | (0x3FFFFFFF - lane).to(tl.int64)
    packed = tl.where(inside, packed, -1 - lane.to(tl.int64))
    return tl.sort(packed, 1, descending=True)


@triton.jit
def place_in_key(packed):
    return tl.where(packed < 0, -1 - packed, 0x3FFFFFFF - (packed & 0x3FFFFFFF)).to(tl.int32)


@triton.jit
def order_by_count(key, inside, lane, cols: tl.constexpr, up: tl.constexpr):
    """The same for keys of any integer dtype, by counting who stands before whom."""
    rank = tl.zeros(key.shape, tl.int32)
    for k in tl.range(0, cols):
        other = tl.sum(tl.where(lane == k, key, 0).to(key.dtype), 1, keep_dims=True).to(key.dtype)
        there = tl.sum(tl.where(lane == k, inside, 0).to(tl.int32), 1, keep_dims=True) != 0
        if up:
            first = other < key
        else:
            first = other > key
        first = first | ((other == key) & (k < lane))
        before = (there & (inside == 0)) | (first & (there == inside))
        rank += before.to(tl.int32)
    order = tl.zeros(key.shape, tl.int32)
    for k in tl.range(0, cols):
        at = tl.sum(tl.where(lane == k, rank, 0), 1, keep_dims=True)
        order = tl.where(lane == at, k, order)
    return order


@triton.jit
def taken(x, at):
    """The elements with these numbers, counted row by row. Flat: gathering rows or columns into a
    larger block fails in Triton's compiler."""
    flat = tl.reshape(x, [x.shape[0] * x.shape[1]])
    where = tl.reshape(at, [at.shape[0] * at.shape[1]])
    return tl.reshape(tl.gather(flat, where, 0), [at.shape[0], at.shape[1]])


@triton.jit
def picked(x, i, j, row, col):
    """One element. Adding zeros to integers changes nothing, so floats go as their bits."""
    return tl.sum(tl.sum(tl.where((i == row) & (j == col), x, 0).to(x.dtype), 1), 0).to(x.dtype)
'''


def _split(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.strip().split("\n\n\n"):
        named = re.search(r"^def (\w+)\(", part, re.MULTILINE)
        assert named is not None
        found[named.group(1)] = part
    return found


_BY_NAME = _split(_TEXTS)
HELPER_NAMES = tuple(_BY_NAME)
HELPERS = "\n\n\n".join(_BY_NAME.values()) + "\n"


def _needs(name: str) -> set[str]:
    words = set(re.findall(r"\b(\w+)\(", _BY_NAME[name]))
    return {other for other in words & set(_BY_NAME) if other != name}


def helper_text(names: Iterable[str]) -> str:
    """The helpers of these names and those that they call, in the order of `HELPERS`."""
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting.extend(_needs(name))
    return "\n\n\n".join(text for name, text in _BY_NAME.items() if name in wanted) + "\n"
