"""Datasets of several files, each of which should be read sequentially, from its first record to its last record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip

from dyntrain.training.sampling.shard_order import ShardOrder


class Shards(gluon.data.Dataset):  # type: ignore[misc]  # mxnet has no types
    """A dataset that concatenates several datasets (shards), such as one `RecordFileDataset` for each file.

    A loader made by `job.loader` reads each shard in sequence. All workers together read `at_once` shards at a time.
    The order of the shards is drawn anew for each epoch. Choose `at_once` at least as large as the number of workers:
    then no worker skips records that another worker reads.
    """

    def __init__(self, shards: Sequence[Any], at_once: int = 16) -> None:
        self._shards = [
            shard if isinstance(shard, gluon.data.Dataset) else gluon.data.SimpleDataset(shard) for shard in shards
        ]
        self._ends = list(accumulate(map(len, self._shards)))
        self.order = ShardOrder(tuple(map(len, self._shards)), at_once)

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        shard_number = bisect_right(self._ends, index)
        return self._shards[shard_number][index - (self._ends[shard_number - 1] if shard_number else 0)]

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Shards:
        """Transform the samples of all shards, like Gluon's `transform`.

        The transformed dataset has the same order of samples.
        """
        return Shards([shard.transform(fn, lazy) for shard in self._shards], self.order.lanes)
