"""Chooses a worker's MXNet contexts (devices): its GPUs, or the CPU.

This module was tested with several CPU contexts, but not with a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

GPU_COUNT_VARIABLE = "DEEPLEARNING_WORKER_GPU_COUNT"


def choose_contexts(gpus: str | None) -> list[Any]:
    """Return the contexts of a `--gpus` option like `0,1`. Raises ValueError for an invalid option.

    Without the option, the variable DEEPLEARNING_WORKER_GPU_COUNT says how many GPUs to use. Without the option and the
    variable, the CPU is used.
    """
    if gpus is None:
        gpu_count = os.environ.get(GPU_COUNT_VARIABLE) or "0"
        if not gpu_count.isdecimal():
            raise ValueError(f"{GPU_COUNT_VARIABLE} is {gpu_count!r}: it must be a number")
        return [mx.gpu(gpu_number) for gpu_number in range(int(gpu_count))] or [mx.cpu()]
    gpu_numbers = [number_text.strip() for number_text in gpus.split(",") if number_text.strip()]
    if not all(gpu_number.isdecimal() for gpu_number in gpu_numbers):
        raise ValueError(f"--gpus {gpus!r} is invalid: give numbers with commas between them, as in 0,1")
    return [mx.gpu(int(gpu_number)) for gpu_number in gpu_numbers] or [mx.cpu()]


def spread(batch: Sequence[Any], contexts: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Split the batch's arrays along axis 0 into one part for each context.

    If the batch has fewer samples than there are contexts, each part has one sample and some contexts get no part.
    """
    row_count, part_count = len(batch[0]), min(len(contexts), len(batch[0]))
    row_cuts = [part_number * row_count // part_count for part_number in range(part_count + 1)]
    return [
        tuple(array[first_row:end_row].as_in_context(context) for array in batch)
        for first_row, end_row, context in zip(row_cuts, row_cuts[1:], contexts, strict=False)
    ]
