"""A loading process keeps the memory of a batch for the next: to be given it anew is slow."""

from __future__ import annotations

import resource
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.data.loader_processes import LoaderProcesses

SAMPLES, FLOATS, BATCHES = 16, 1 << 18, 6
PAGES = SAMPLES * FLOATS * 4 // resource.getpagesize()  # of a batch's samples


class Large:
    """A sample of a megabyte."""

    def __len__(self) -> int:
        return SAMPLES * BATCHES

    def __getitem__(self, index: int) -> Any:
        return np.full(FLOATS, index, np.float32)


def faults(samples: list[Any]) -> Any:
    """How many pages this process has been given."""
    return mx.nd.array([resource.getrusage(resource.RUSAGE_SELF).ru_minflt] * len(samples), dtype=np.float64)


def test_batches_after_the_first_are_made_in_the_memory_of_those_before() -> None:
    loader = Loader(Large(), processes=LoaderProcesses(Large(), faults, 1, whole_batch=True))
    try:
        loads = [Load(0, 0, np.arange(SAMPLES) + at * SAMPLES) for at in range(BATCHES)]
        given = [loader.take(iter([load])).asnumpy()[0] for load in loads]
    finally:
        loader.close()
    assert given[-1] - given[1] < (BATCHES - 2) * PAGES / 2
