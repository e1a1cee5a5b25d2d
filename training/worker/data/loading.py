"""What the loaders of a job load next: this worker's batches from a position on, which follow from it and from the
membership.
"""

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
from dyntrain.training.worker.data.randomness import draws_as, seed_generators
from dyntrain.training.worker.data.sampled import SampledBatches


class Loading:
    def __init__(self) -> None:
        self.loaders: list[Loader] = []
        self._shares = Shares(0, 0, 0, FixedGlobal(1))
        self._at_most: int | None = None

    def begin(self, shares: Shares, at_most: int | None) -> None:
        """`at_most`: samples that are loaded at once; a larger batch comes in parts."""
        self._shares, self._at_most = shares, at_most

    @property
    def sequence(self) -> ShardOrder | None:
        """The order that the shards of the loaders want. Raises ValueError when they want different ones."""
        wanted = {loader.sequence for loader in self.loaders if loader.sequence is not None}
        if len(wanted) > 1:
            raise ValueError(
                f"loaders of different shards ({'; '.join(sorted(map(str, wanted)))}): an epoch has one order, so they "
                "must have the same lengths, and be as many at once"
            )
        return next(iter(wanted), None)

    def sampled(self, seed: int) -> SampledBatches | None:
        """The batches of the loaders' own sampler. Raises ValueError when there are two, or it is not fit."""
        samplers = {id(loader.sampler): loader for loader in self.loaders if loader.sampler is not None}
        if len(samplers) > 1:
            raise ValueError("loaders with two batch samplers: an epoch has one order, so give both the same one")
        loader = next(iter(samplers.values()), None)
        return None if loader is None else SampledBatches(loader.sampler, loader.samples, seed)

    def take(self, loader: Loader, position: Position, number: int, workers: int, part: int) -> Any:
        """Part `part` of the batch at `position`."""
        batch = loader.take(islice(self._loads(loader, position, number, workers), part, None))
        if loader.draws_here:  # what the script draws itself must not follow from the last sample
            seed_generators(self._shares.seed, position.step, draws_as(number), part)
        return batch

    def part(self, loader: Loader, epoch: int, batch: Indices, rows: Indices) -> Any:
        """These rows of a batch, of the script's epoch of that number."""
        return loader.load(self._load(loader, epoch, batch, rows))

    def expect(self, position: Position, number: int, workers: int) -> None:
        """Of a generation that is being formed: its first batches are loaded meanwhile. A joiner has nothing in use
        yet; which one of several loaders it will begin with, only the script knows.
        """
        used = self.loaders if len(self.loaders) == 1 else [loader for loader in self.loaders if loader.in_use]
        for loader in used:
            loader.expect(self._loads(loader, position, number, workers))

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()

    def _loads(self, loader: Loader, position: Position, number: int, workers: int) -> Iterator[Load]:
        for epoch, batch, own in self._shares.ahead(position, number, workers):
            for rows in parts(own, self._at_most):
                yield self._load(loader, epoch, batch, rows)

    def _load(self, loader: Loader, epoch: int, batch: Indices, rows: Indices) -> Load:
        seed = self._shares.seed
        return Load(seed, epoch, batch, rows) if loader.whole_batch else Load(seed, epoch, batch[rows])
