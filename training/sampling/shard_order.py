"""Order of an epoch for data that is read sequentially: shard after shard, with several shards at a time. Pure.

The shards follow one another in an order drawn from (seed, epoch), and that sequence is cut into `lanes`. A step takes
the next records of every lane, so a batch mixes as many shards. A worker's share is a run of records from one lane or a
few neighbouring lanes. A worker that takes over a lane continues at its next record. The order does not depend on the
membership: each record is taken once an epoch, and the batches are those of a single worker.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from dyntrain.training.sampling.sharding import Indices, epoch_order


@dataclass(frozen=True)
class ShardOrder:
    """The order. `shards` has the number of samples of each shard, in the dataset's order."""

    shards: tuple[int, ...]
    lanes: int

    def __post_init__(self) -> None:
        if not self.shards or min(self.shards) < 1 or self.lanes < 1:
            raise ValueError(
                f"{len(self.shards)} shards, {self.lanes} at once: give at least one of each, and no empty shard"
            )

    def __str__(self) -> str:
        lengths = zlib.crc32(",".join(map(str, self.shards)).encode())
        return f"{len(self.shards)} shards ({lengths:08x}) in sequence, {self.lanes} at once"

    @property
    def samples(self) -> int:
        return sum(self.shards)

    def epoch(self, seed: int, epoch: int, step: int) -> Indices:
        """Order of an epoch, shape (samples,), for steps of `step` samples."""
        starts = np.cumsum((0, *self.shards))
        shard_numbers = epoch_order(len(self.shards), seed, epoch)
        row = np.concatenate([np.arange(starts[shard], starts[shard + 1]) for shard in shard_numbers])
        lanes, full = min(self.lanes, step), len(row) // step
        shares = [step * lane // lanes for lane in range(lanes + 1)]  # cut as a step is cut for so many workers
        cuts = [len(row) * share // step for share in shares]
        steps = [
            row[begin : begin + full * (share_end - share_start)].reshape(full, share_end - share_start)
            for begin, share_start, share_end in zip(cuts, shares, shares[1:], strict=False)
        ]
        last_step = [
            row[begin + full * (share_end - share_start) : end]
            for begin, end, share_start, share_end in zip(cuts, cuts[1:], shares, shares[1:], strict=False)
        ]
        return np.concatenate([np.concatenate(steps, axis=1).reshape(-1), *last_step])
