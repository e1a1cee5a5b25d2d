"""Orders an epoch's samples for data that is read sequentially, several shards at a time. Pure.

The shards are put in an order drawn from (seed, epoch), and the sequence of their records is cut into `lanes` lanes. A
step takes the next records of every lane, so a batch mixes records of about `lanes` shards. A worker's share of a step
consists of successive records of one lane or of a few neighbouring lanes. A worker that takes over a lane from another
worker continues at the lane's next record. The order does not depend on the number of workers: each record is taken
once an epoch, and each batch contains the same records as with a single worker.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from dyntrain.training.sampling.sharding import Indices, epoch_order


@dataclass(frozen=True)
class ShardOrder:
    """The order of samples in a dataset of shards.

    `shards` contains the number of samples of each shard, in the dataset's order.
    """

    shards: tuple[int, ...]  # number of samples in each shard
    lanes: int  # number of shards that are read at the same time

    def __post_init__(self) -> None:
        if not self.shards or min(self.shards) < 1 or self.lanes < 1:
            raise ValueError(
                f"invalid shards: {len(self.shards)}, of which {self.lanes} are read at once; give at least one, "
                "and no empty shard"
            )

    def __str__(self) -> str:
        lengths_checksum = zlib.crc32(",".join(map(str, self.shards)).encode())
        return f"{len(self.shards)} shards ({lengths_checksum:08x}) in sequence, {self.lanes} at once"

    @property
    def samples(self) -> int:
        return sum(self.shards)

    def epoch(self, seed: int, epoch: int, step: int) -> Indices:
        """Return an epoch's samples in order, as an array of shape (samples,), for steps of `step` samples."""
        shard_starts = np.cumsum((0, *self.shards))
        shard_numbers = epoch_order(len(self.shards), seed, epoch)
        sample_order = np.concatenate(
            [np.arange(shard_starts[shard], shard_starts[shard + 1]) for shard in shard_numbers]
        )
        lanes, full_steps = min(self.lanes, step), len(sample_order) // step
        step_cuts = [step * lane // lanes for lane in range(lanes + 1)]  # where each lane's records begin in a step
        lane_cuts = [len(sample_order) * cut // step for cut in step_cuts]
        full_step_parts = [
            sample_order[lane_begin : lane_begin + full_steps * (next_cut - cut)].reshape(full_steps, next_cut - cut)
            for lane_begin, cut, next_cut in zip(lane_cuts, step_cuts, step_cuts[1:], strict=False)
        ]
        last_step_parts = [
            sample_order[lane_begin + full_steps * (next_cut - cut) : lane_end]
            for lane_begin, lane_end, cut, next_cut in zip(
                lane_cuts, lane_cuts[1:], step_cuts, step_cuts[1:], strict=False
            )
        ]
        return np.concatenate([np.concatenate(full_step_parts, axis=1).reshape(-1), *last_step_parts])
