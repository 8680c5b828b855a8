"""A task as the words that the task hash mixes; pto_wsp.plan defines the hash itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_wsp.plan.hashing import (
    COUNTS,
    INDICES,
    KERNEL,
    PATH,
    PROCESS,
    REPLICA,
    SCALARS,
    TENSOR_WORDS,
    TENSORS,
)

if TYPE_CHECKING:
    from pto_wsp.backends.reference.walk import Task


def task_words(task: Task, kernel_hash: int, path_hash: int) -> dict[int, int]:
    """The words of a task by position: no pointers, no strides, nothing of where it runs."""
    words = {
        KERNEL: kernel_hash,
        PATH: path_hash,
        PROCESS: 0,
        REPLICA: 0,
        COUNTS: len(task.indices) | len(task.scalars) << 16 | len(task.regions) << 32,
    }
    words.update((INDICES + k, index) for k, index in enumerate(task.indices))
    words.update((SCALARS + k, bits) for k, bits in enumerate(task.scalars))
    for p, region in enumerate(task.regions):
        first = TENSORS + TENSOR_WORDS * p
        words |= {first: region.tensor, first + 1: region.mode, first + 2: len(region.dims)}
        for d, dim in enumerate(region.dims):
            at = first + 4 + 3 * d
            words |= {at: dim.start, at + 1: dim.extent, at + 2: dim.step}
    return words
