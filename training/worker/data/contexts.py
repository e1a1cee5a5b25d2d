"""A worker's MXNet contexts: its GPUs, or the CPU. Several contexts have been run on CPUs, but none on a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

GPU_COUNT_VARIABLE = "DEEPLEARNING_WORKER_GPU_COUNT"


def choose_contexts(gpus: str | None) -> list[Any]:
    """Return the contexts of a `--gpus` option like `0,1`. Raises ValueError for an invalid one.

    Without the option, DEEPLEARNING_WORKER_GPU_COUNT says how many GPUs to use. If that is not set, the CPU is used.
    """
    if gpus is None:
        count = os.environ.get(GPU_COUNT_VARIABLE) or "0"
        if not count.isdecimal():
            raise ValueError(f"{GPU_COUNT_VARIABLE} is {count!r}: must be a number")
        return [mx.gpu(i) for i in range(int(count))] or [mx.cpu()]
    numbers = [part.strip() for part in gpus.split(",") if part.strip()]
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(f"--gpus {gpus!r}: give numbers with commas between them, as in 0,1")
    return [mx.gpu(int(number)) for number in numbers] or [mx.cpu()]


def spread(batch: Sequence[Any], contexts: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Split the batch's arrays along axis 0 into one part for each context.

    With fewer samples than contexts there are only as many parts as samples.
    """
    size, parts = len(batch[0]), min(len(contexts), len(batch[0]))
    cuts = [i * size // parts for i in range(parts + 1)]
    return [
        tuple(array[first:end].as_in_context(context) for array in batch)
        for first, end, context in zip(cuts, cuts[1:], contexts, strict=False)
    ]
