"""Hashes that the plan format defines: names, signatures, site paths, and the task hash."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import cache

_MASK = (1 << 64) - 1
_FNV_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_SEEDS = (0x50544F5700000001, 0x50544F5700000002)
_GOLDEN = 0x9E3779B97F4A7C15

# Positions of a task's words in the task hash.
KERNEL, PATH, PROCESS, REPLICA, COUNTS = range(5)
INDICES = 8
SCALARS = 24
TENSORS = 64
TENSOR_WORDS = 32


def fnv1a64(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = _FNV_BASIS
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value


def name_hash(name: str) -> int:
    """Kernel.name_hash."""
    return fnv1a64(name.encode())


def abi_hash(params: Iterable[tuple[str, int, int, int, int]]) -> int:
    """Kernel.abi_hash of parameters given as (name, kind, dtype, mode, rank)."""
    texts = (
        f"{name}:{kind:d}:{dtype:d}:{mode:d}:{rank:d}" for name, kind, dtype, mode, rank in params
    )
    return fnv1a64(";".join(texts).encode())


def path_hash(path: Iterable[int]) -> int:
    """Site.path_hash: entry index, then the child number in each block down to the task."""
    return fnv1a64(b"".join(struct.pack("<I", step) for step in path))


def splitmix(z: int) -> int:
    """The finaliser of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@cache
def coefficient(lane: int, position: int) -> int:
    """The odd factor of the word at a position."""
    return splitmix((_SEEDS[lane] + position * _GOLDEN) & _MASK) | 1


def fmix(h: int) -> int:
    """The finaliser of MurmurHash3."""
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return h ^ (h >> 33)


def task_lanes(words: Mapping[int, int]) -> tuple[int, int]:
    """Both lanes of one task, from its words by position. Negative words wrap."""
    lanes = (sum(word * coefficient(lane, at) for at, word in words.items()) for lane in (0, 1))
    first, second = (fmix(total & _MASK) for total in lanes)
    return first, second


def program_hash(tasks: Iterable[Mapping[int, int]]) -> tuple[int, int]:
    """The task hash of a set of tasks: the order in which they come does not matter."""
    first = second = 0
    for words in tasks:
        lane0, lane1 = task_lanes(words)
        first, second = (first + lane0) & _MASK, (second + lane1) & _MASK
    return first, second
