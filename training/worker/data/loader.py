"""Loads and prefetches the batches that this worker takes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.data.loader_processes import (
    BatchFuture,
    Batchify,
    LoaderProcesses,
    free_batches,
    unpickle_batch,
)
from dyntrain.training.worker.data.padding import PaddingCheck
from dyntrain.training.worker.data.seeded import Key, SampleError, SeededDataset, key_of_batch
from dyntrain.training.worker.data.shards import Shards
from mxnet.gluon.data import dataloader
from mxnet.io import DataIter

__all__ = ["Load", "Loader", "LoaderBroken", "SampleError"]


class LoaderBroken(RuntimeError):
    """A batch cannot be loaded, as a process that loads batches has ended or does not answer."""


@dataclass(frozen=True, eq=False)
class Load:
    """A batch to load.

    The batch is made of the samples at `indices`, and its `rows` (if None, all rows) are returned.
    """

    seed: int  # of the random draws
    epoch: int
    indices: Indices  # the batch's samples
    rows: Indices | None = None  # rows of the batch to return; None: all

    def equals(self, other: Load) -> bool:
        return (
            (self.seed, self.epoch) == (other.seed, other.epoch)
            and np.array_equal(self.indices, other.indices)
            and ((self.rows is None and other.rows is None) or np.array_equal(self.rows, other.rows))  # type: ignore[arg-type]
        )

    @property
    def sample_keys(self) -> list[Key]:
        return [(self.seed, self.epoch, index) for index in self.indices.tolist()]

    def select_rows(self, batch: Any) -> Any:
        """Return the rows of `batch` that are to be returned for this load.

        Raises ValueError if an array in the batch does not have a row for each sample.
        """
        return (
            batch
            if self.rows is None
            else _rows_of_batch(batch, len(self.indices), slice(self.rows[0], self.rows[-1] + 1))
        )


class Loader:
    """A replacement of `gluon.data.DataLoader` in an elastic job, made by `job.loader`.

    Without `processes`, each batch is loaded in this process when the script needs it. `whole_batch` is None if the
    script did not give this argument.
    """

    def __init__(
        self,
        dataset: Any,
        batchify: Batchify | None = None,
        processes: LoaderProcesses | None = None,
        prefetch: int = 0,
        timeout: float = 120,
        pinned: Any = None,
        batch_size: int | None = None,
        discards: bool = False,
        sampler: Any = None,
        whole_batch: bool | None = False,
    ) -> None:
        self._padding = PaddingCheck(batchify, whole_batch)
        self.dataset, self._batchify = dataset, batchify or dataloader.default_batchify_fn
        self._processes, self._prefetch = processes, prefetch
        self._timeout, self._pinned = timeout, pinned
        self.samples, self.batch_size, self.discards = len(dataset), batch_size, discards
        self.batches: Callable[[], Iterator[Any]] | None = None
        """Iterates over the batches of the current epoch; set by the job."""
        self.place_in_epoch: Callable[[], tuple[int, bool]] | None = None
        self.sampler, self.whole_batch = sampler, bool(whole_batch)
        self.sequence = dataset.order if isinstance(dataset, Shards) and sampler is None else None
        self._prefetched: deque[tuple[Load, BatchFuture]] = deque()
        self._dropped: list[BatchFuture] = []

    def __len__(self) -> int:
        """Return an epoch's number of batches, or, if no batch size was given, the number of samples."""
        if self.sampler is not None:
            return len(self.sampler)
        if self.batch_size is None:
            return self.samples
        return self.samples // self.batch_size if self.discards else -(-self.samples // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of the present epoch.

        Raises TypeError if the loader was not made by `job.loader`.
        """
        if self.batches is None:
            raise TypeError("this loader was not made by job.loader(): iterate over epoch.batches(loader)")
        return self.batches()

    @property
    def batch_number(self) -> int:
        """The number of the current batch, counted from 0 at the epoch's start.

        The batch number is the same on all workers, also on workers that joined later.
        """
        return self._place_in_epoch[0]

    @property
    def last(self) -> bool:
        """Whether the current batch is the last of its epoch."""
        return self._place_in_epoch[1]

    @property
    def _place_in_epoch(self) -> tuple[int, bool]:
        if self.place_in_epoch is None:
            raise TypeError("this loader was not made by job.loader(), so it has no current batch in an epoch")
        return self.place_in_epoch()

    @property
    def changes_generators(self) -> bool:
        """Whether loading a batch changes the random generators of this process."""
        return self._processes is None

    def take(self, loads: Iterator[Load]) -> Any:
        """Return the batch for the first of `loads`, and prefetch the batches for the following loads.

        `loads` contains the loads for the present workers of the job. Prefetched batches that are not in `loads` are
        dropped.
        """
        if self._processes is None:
            return self._load_here(next(loads))
        self._load_ahead(self._processes, loads)
        load, batch_future = self._prefetched.popleft()
        return self._to_pinned_memory(self._await_batch(self._processes, load, batch_future))

    def load(self, load: Load) -> Any:
        """Load one batch that is not among the prefetched batches, and leave the prefetched batches unchanged."""
        if self._processes is None:
            return self._load_here(load)
        return self._to_pinned_memory(self._await_batch(self._processes, load, self._submit(self._processes, load)))

    def _load_here(self, load: Load) -> Any:
        seeded_dataset = SeededDataset(self.dataset)
        samples = [seeded_dataset[key] for key in load.sample_keys]
        if self.whole_batch:
            seeded_dataset.seed(key_of_batch(load.sample_keys))
        batch = self._batchify(samples)
        self._padding.check(samples, batch, self._batchify)
        return self._to_pinned_memory(load.select_rows(batch))

    def start_prefetch(self, loads: Iterator[Load]) -> None:
        """Start to prefetch the batches for the next calls of `take`.

        Without processes that load batches, nothing is prefetched. Errors in loading are raised by `take`.
        """
        if self._processes is not None:
            with suppress(LoaderBroken):
                self._load_ahead(self._processes, loads)

    @property
    def is_prefetching(self) -> bool:
        """Whether any batch is prefetched at present."""
        return bool(self._prefetched)

    def _load_ahead(self, processes: LoaderProcesses, loads: Iterator[Load]) -> None:
        next_loads = list(islice(loads, self._prefetch + 1))
        if not all(load.equals(next_load) for (load, _), next_load in zip(self._prefetched, next_loads, strict=False)):
            self.drop_prefetched()
        self._dropped = free_batches(self._dropped)
        for load in next_loads[len(self._prefetched) :]:
            self._prefetched.append((load, self._submit(processes, load)))

    def drop_prefetched(self) -> None:
        """Discard the prefetched batches."""
        if self._processes is not None:
            self._dropped += self._processes.drop([batch_future for _, batch_future in self._prefetched])
            self._prefetched.clear()

    def _submit(self, processes: LoaderProcesses, load: Load) -> BatchFuture:
        try:
            return processes.submit(load.sample_keys)
        except BrokenExecutor as error:
            raise LoaderBroken(_ENDED_MESSAGE) from error

    def _await_batch(self, processes: LoaderProcesses, load: Load, batch_future: BatchFuture) -> Any:
        try:
            while (
                packed_batch := batch_future.result(self._timeout)
            ) is None:  # discarded along with others of the same processes
                batch_future = self._submit(processes, load)
        except BrokenExecutor as error:
            raise LoaderBroken(_ENDED_MESSAGE) from error
        except TimeoutError as error:
            raise LoaderBroken(
                f"the samples {load.indices.tolist()} of epoch {load.epoch} were not loaded in {self._timeout:g} s: "
                "is the storage slow, or shared memory full? Raise timeout=... to wait longer"
            ) from error
        return load.select_rows(unpickle_batch(packed_batch))

    def _to_pinned_memory(self, batch: Any) -> Any:
        return batch if self._pinned is None else dataloader._as_in_context(batch, self._pinned)

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


def _rows_of_batch(batch: Any, samples: int, rows: slice) -> Any:
    if type(batch) in (list, tuple):
        return type(batch)(_rows_of_batch(batch_part, samples, rows) for batch_part in batch)
    shape = getattr(batch, "shape", None)
    if batch is None or shape == () or isinstance(batch, int | float | str):
        return batch  # a value for all samples
    if not shape or shape[0] != samples:
        raise ValueError(
            f"whole_batch=True: batchify_fn made {type(batch).__name__}{'' if shape is None else f' of {shape}'} "
            f"out of {samples} samples; it must return arrays with one row for each sample, numbers, or lists or "
            "tuples of these"
        )
    return batch[rows]


def samples_of(dataset: Any) -> int:
    """Return the dataset's length. Raises TypeError for a dataset with its own batches, or without samples by index."""
    if isinstance(dataset, dataloader.DataLoader):
        raise TypeError(
            "a gluon DataLoader makes batches of its own: use job.loader(...), which takes the same arguments"
        )
    if isinstance(dataset, Loader):
        return dataset.samples
    if isinstance(dataset, DataIter):
        raise TypeError(
            f"{type(dataset).__name__} divides its data only once, among the workers of that moment: use "
            "gluon.data.vision.ImageRecordDataset for a RecordIO file, gluon.data.ArrayDataset for arrays"
        )
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"{type(dataset).__name__} has no length, or no samples by number: the job divides len(dataset) samples "
            "among its workers, and asks for dataset[i]"
        )
    return len(dataset)


def discards_last(samples: int, batch_size: int | None, shuffle: bool, last_batch: str, batch_sampler: Any) -> bool:
    """Whether the loader's arguments say that an incomplete last batch is left out.

    Raises ValueError for arguments that Gluon's DataLoader accepts but an elastic job cannot fulfil.
    """
    if batch_sampler is not None and (batch_size is not None or last_batch != "keep"):
        raise ValueError(
            "batch_sampler= defines each batch: omit batch_size= and last_batch=. If trainer.step() gets a constant, "
            "pass that as job.epochs(..., global_batch=...)"
        )
    if not shuffle:
        raise ValueError(
            "shuffle=False: the job draws the order of each epoch. Use Shards([...]) for data with a fixed order"
        )
    if last_batch == "keep":
        return False
    if last_batch != "discard":
        raise ValueError(
            f"last_batch={last_batch!r}: pass 'keep' to train on a short last batch, 'discard' to leave it out"
        )
    if batch_size is None or samples < batch_size:
        raise ValueError(
            f"last_batch='discard' with batch_size={batch_size} of {samples} samples: there is no whole batch; give "
            "a smaller batch_size"
        )
    return True


_ENDED_MESSAGE = "a loading process ended unexpectedly: killed for lack of memory, or crashed inside a library?"


def make_loader(
    dataset: Any,
    batchify: Batchify | None,
    workers: int,
    prefetch: int | None,
    timeout: float,
    pinned: int | None,
    *,
    whole_batch: bool | None = False,
    **options: Any,
) -> Loader:
    """Make a loader, and fork `workers` processes that load its batches.

    `options` are further arguments of `Loader`.
    """
    if workers < 0 or (prefetch is not None and prefetch < 0) or timeout <= 0:
        raise ValueError(
            f"num_workers ({workers}) and prefetch ({prefetch}) must not be negative, timeout ({timeout}) above 0"
        )
    loading_processes = LoaderProcesses(dataset, batchify, workers, whole_batch) if workers else None
    batches_ahead = 2 * workers if prefetch is None else prefetch
    pinned_context = None if pinned is None else mx.context.cpu_pinned(pinned)
    return Loader(
        dataset, batchify, loading_processes, batches_ahead, timeout, pinned_context, whole_batch=whole_batch, **options
    )
