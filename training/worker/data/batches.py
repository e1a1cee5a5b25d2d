"""Fetches samples by index from any kind of dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.sampling.sharding import Indices
from mxnet.gluon.data.dataloader import default_batchify_fn


class Dataset(Protocol):
    """A dataset: any object with a length and samples by index, such as a gluon Dataset, a list or an ArrayBatches."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


class ArrayBatches:
    """A dataset of several arrays of equal length in memory. A batch consists of the same rows of each array."""

    def __init__(self, *arrays: Any) -> None:
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise ValueError(f"the arrays must have equal lengths, but have {sorted(lengths)}")
        self._arrays: Sequence[Any] = [
            np.asarray(array.asnumpy() if hasattr(array, "asnumpy") else array) for array in arrays
        ]

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(array[index] for array in self._arrays)

    def rows(self, indices: Indices) -> list[Any]:
        return [mx.nd.array(array[indices], dtype=array.dtype) for array in self._arrays]


def fetch_samples(dataset: Dataset, indices: Indices) -> Any:
    """Return the samples at `indices` as a batch, stacked as by Gluon's DataLoader."""
    if isinstance(dataset, ArrayBatches):
        return dataset.rows(indices)
    return default_batchify_fn([dataset[int(index)] for index in indices])
