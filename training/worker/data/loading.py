"""Tells a job's loaders which batches to load next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, parts
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.data.randomness import number_for_seed, seed_generators
from dyntrain.training.worker.data.sampled import SampledBatches


class JobLoaders:
    """The loaders of a job, and this worker's shares of the loaders' batches."""

    def __init__(self) -> None:
        self.loaders: list[Loader] = []
        self._shares = Shares(0, 0, 0, FixedGlobal(1))
        self._at_most: int | None = None

    def set_shares(self, shares: Shares, at_most: int | None) -> None:
        """Set the workers' shares of samples. A share of more than `at_most` samples is loaded in parts."""
        self._shares, self._at_most = shares, at_most

    @property
    def sequence(self) -> ShardOrder | None:
        """The order of samples that the loaders' `Shards` require, or None.

        Raises ValueError if two loaders require different orders.
        """
        shard_orders = {loader.sequence for loader in self.loaders if loader.sequence is not None}
        if len(shard_orders) > 1:
            raise ValueError(
                f"loaders with different Shards ({'; '.join(sorted(map(str, shard_orders)))}): an epoch has one "
                "order, so "
                "give all the same lengths and the same at_once"
            )
        return next(iter(shard_orders), None)

    def sampler_batches(self, seed: int) -> SampledBatches | None:
        """Return the batches of the loaders' batch sampler, or None if no loader has a batch sampler.

        Raises ValueError if the loaders have two different samplers, or an invalid sampler.
        """
        loaders_by_sampler = {id(loader.sampler): loader for loader in self.loaders if loader.sampler is not None}
        if len(loaders_by_sampler) > 1:
            raise ValueError("loaders with two batch samplers: an epoch has one order, so give all the same sampler")
        loader = next(iter(loaders_by_sampler.values()), None)
        return None if loader is None else SampledBatches(loader.sampler, loader.samples, seed)

    def take(self, loader: Loader, position: Position, number: int, workers: int, part_number: int) -> Any:
        """Return part `part_number` of this worker's batch at `position`."""
        batch = loader.take(islice(self._upcoming_loads(loader, position, number, workers), part_number, None))
        if loader.changes_generators:  # the script's own draws must not depend on the last sample's seed
            seed_generators(self._shares.seed, position.step, number_for_seed(number), part_number)
        return batch

    def load_rows(self, loader: Loader, epoch: int, batch: Indices, rows: Indices) -> Any:
        """Load the given rows of a batch. `epoch` is the epoch's number as the script counts epochs."""
        return loader.load(self._load_of_rows(loader, epoch, batch, rows))

    def start_prefetch(self, position: Position, number: int, workers: int) -> None:
        """Prefetch a generation's first batches while the generation is formed.

        A job's only loader always prefetches. If a job has several loaders, only the loaders with prefetched batches
        prefetch. A joining worker with several loaders prefetches nothing, as only its script knows which loader is
        used first.
        """
        prefetching_loaders = (
            self.loaders if len(self.loaders) == 1 else [loader for loader in self.loaders if loader.is_prefetching]
        )
        for loader in prefetching_loaders:
            loader.start_prefetch(self._upcoming_loads(loader, position, number, workers))

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()

    def _upcoming_loads(self, loader: Loader, position: Position, number: int, workers: int) -> Iterator[Load]:
        for epoch, batch, own_rows in self._shares.steps_ahead(position, number, workers):
            for rows in parts(own_rows, self._at_most):
                yield self._load_of_rows(loader, epoch, batch, rows)

    def _load_of_rows(self, loader: Loader, epoch: int, batch: Indices, rows: Indices) -> Load:
        seed = self._shares.seed
        return Load(seed, epoch, batch, rows) if loader.whole_batch else Load(seed, epoch, batch[rows])
