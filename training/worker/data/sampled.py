"""Divides the batches of a script's own batch sampler, such as a sampler that groups sentences by length.

A sampler may shuffle in place, or have a random generator of its own, so a pass over the sampler depends on the earlier
passes. On every worker, epoch 5 uses the batches of the sampler's sixth pass. A joining worker therefore iterates
through the passes that it missed. NumPy's and Python's global random generators are seeded before each pass.
"""

from __future__ import annotations

import copy
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.refused import Refused

KEPT_PASSES = 2  # prefetched batches may already be of the next epoch

REPEATED_SAMPLE_MESSAGE = (
    "{name} gives sample {sample} twice in an epoch: each may count once. To draw with replacement, make a "
    "dataset of the draws: SimpleDataset(drawn).transform(lambda i: data[int(i)], lazy=True)"
)

CHANGED_SAMPLER_MESSAGE = (
    "{name} gives other batches than when job.epochs() began: batches are drawn ahead, also on workers that join "
    "later. Let the sampler draw and count its epochs in its __iter__, not set_epoch()"
)


class SampledBatches:
    """The batches of a batch sampler for a dataset of `samples` samples.

    Raises ValueError if the batches cannot be divided among workers, or would differ between workers.
    """

    def __init__(self, sampler: Any, samples: int, seed: int) -> None:
        self._name = f"batch_sampler={type(sampler).__name__}"
        self._samples, self._seed = samples, seed
        self._script_sampler, self._unused_copy = sampler, self._copy_of_sampler(sampler)
        self._sampler, self._next = self._copy_of_sampler(sampler), 0  # a copy, and the number of its next pass
        self._passes: dict[int, list[Indices]] = {}
        self.taken = 0  # samples of an epoch
        first_batches = self.batches(0)
        self._first = _checksum(first_batches)
        if self._first_checksum() != self._first:
            raise ValueError(
                f"{self._name} draws different batches each time, but every worker must draw the same. Use only "
                "random, np.random or a seeded generator"
            )
        self.largest = max(map(len, first_batches))
        self._summary = f"batches of {type(sampler).__name__} ({self._first:08x})"

    def __str__(self) -> str:
        """Return a text that is equal on two workers if their samplers give equal first batches."""
        return self._summary

    def batches(self, epoch: int) -> list[Indices]:
        """Return the sample indices of each batch of the epoch."""
        if epoch not in self._passes:
            if epoch < self._next:
                self._sampler, self._next = self._copy_of_sampler(self._unused_copy), 0
            while self._next <= epoch:
                next_batches, self._next = self._iterate_pass(self._sampler, self._next), self._next + 1
            latest_epochs = sorted(self._passes)[1 - KEPT_PASSES :]
            self._passes = {
                **{kept_epoch: self._passes[kept_epoch] for kept_epoch in latest_epochs},
                epoch: next_batches,
            }
        return self._passes[epoch]

    def refuse_changed_sampler(self) -> None:
        """Raise Refused if the script has changed its sampler since the job began.

        This class iterates only over copies of the sampler, so an unchanged sampler still gives the same first pass.
        """
        try:
            is_unchanged = self._first_checksum() == self._first
        except ValueError:  # e.g. another number of samples
            is_unchanged = False
        if not is_unchanged:
            raise Refused(CHANGED_SAMPLER_MESSAGE.format(name=self._name))

    def _first_checksum(self) -> int:
        return _checksum(self._iterate_pass(self._copy_of_sampler(self._script_sampler), 0))

    def _copy_of_sampler(self, sampler: Any) -> Any:
        try:
            return copy.deepcopy(sampler)
        except TypeError as error:
            raise ValueError(
                f"{self._name} cannot be copied ({error}): give an iterable that can be copied, as a "
                "gluon.data.BatchSampler or a list of lists of indices"
            ) from error

    def _iterate_pass(self, sampler: Any, epoch: int) -> list[Indices]:
        with seeded_generators(self._seed, epoch):
            batches = [self._batch_indices(batch) for batch in sampler]
        sampled_indices = np.concatenate(batches) if batches else np.zeros(0, np.int64)
        if not len(sampled_indices) or min(map(len, batches)) == 0:
            raise ValueError(f"{self._name}: an epoch must have at least one batch, and no empty batch")
        if sampled_indices.min() < 0 or sampled_indices.max() >= self._samples:
            raise ValueError(
                f"{self._name} gives index "
                f"{sampled_indices.max() if sampled_indices.min() >= 0 else sampled_indices.min()}, the dataset has "
                f"{self._samples} samples"
            )
        if len(np.unique(sampled_indices)) < len(sampled_indices):
            repeated_index = int(np.flatnonzero(np.bincount(sampled_indices) > 1)[0])
            raise ValueError(REPEATED_SAMPLE_MESSAGE.format(name=self._name, sample=repeated_index))
        self.taken = self.taken or len(sampled_indices)
        if len(sampled_indices) != self.taken:
            raise ValueError(
                f"{self._name} gives {len(sampled_indices)} samples in epoch {epoch}, but {self.taken} in the first: "
                "all epochs must have equally many, unlike with last_batch='rollover'"
            )
        return batches

    def _batch_indices(self, batch: Any) -> Indices:
        indices = np.asarray(batch.asnumpy() if hasattr(batch, "asnumpy") else batch)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise ValueError(
                f"{self._name} gives {batch!r} for a batch, which must be a list of sample numbers. For a "
                "sampler of single samples, use batch_sampler=gluon.data.BatchSampler(sampler, batch_size)"
            )
        return indices.astype(np.int64)


def _checksum(batches: list[Indices]) -> int:
    checksum = 0
    for batch in batches:
        checksum = zlib.crc32(batch.tobytes(), zlib.crc32(len(batch).to_bytes(8, "big"), checksum))
    return checksum


@contextmanager
def seeded_generators(seed: int, epoch: int) -> Iterator[None]:
    """Seed NumPy's and Python's global random generators within the context, and restore their states at its end."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    python_seed, numpy_seed = np.random.SeedSequence([seed, epoch], spawn_key=(1,)).generate_state(2)
    random.seed(int(python_seed))
    np.random.seed(int(numpy_seed))
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
