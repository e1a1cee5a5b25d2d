"""Computes each worker's samples in each step, only from seed, epoch, position and the workers' number.

The samples of an epoch are a permutation of `range(samples)` drawn from (seed, epoch). A step takes the next
`global_batch` samples, and the last step of an epoch takes the remaining samples. A worker's share of a step is a
contiguous slice, chosen by the worker's number. So every sample is taken exactly once an epoch, even if the workers
change. No batch is padded, and no sample is left out unless the script discards the last batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from dyntrain.training.protocol.messages import Position

Indices = npt.NDArray[np.int64]


def epoch_order(samples: int, seed: int, epoch: int) -> Indices:
    """Return the samples of an epoch in order, as an array of shape (samples,).

    The generator PCG64 gives the same numbers in all NumPy releases and on all machines.
    """
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples)


def batch_size(samples: int, global_batch: int, offset: int) -> int:
    """Return the number of samples of all workers in the step at `offset`, which is smaller in an epoch's last step."""
    return min(global_batch, samples - offset)


def share(order: Indices, global_batch: int, offset: int, number: int, workers: int, unit: int = 1) -> Indices:
    """Return the samples of worker `number` in the step at `offset`: a multiple of `unit` samples.

    A worker may get no sample, if the step has less than `unit` samples for each worker.
    """
    if not 0 <= number < workers:
        raise ValueError(f"worker number {number} is not in 0..{workers - 1}")
    unit_count = batch_size(len(order), global_batch, offset) // unit
    first_unit, end_unit = number * unit_count // workers, (number + 1) * unit_count // workers
    return order[offset + first_unit * unit : offset + end_unit * unit]


def parts(indices: Indices, max_samples: int | None) -> list[Indices]:
    """Split a share into parts of nearly equal size, none larger than `max_samples`."""
    return [indices] if max_samples is None else np.array_split(indices, -(-len(indices) // max_samples))


def after_step(position: Position, samples: int, global_batch: int) -> Position:
    """Return the position one step later, which after an epoch's last step is the start of the next epoch."""
    next_offset = position.offset + batch_size(samples, global_batch, position.offset)
    if next_offset == samples:
        return Position(epoch=position.epoch + 1, offset=0, step=position.step + 1)
    return Position(epoch=position.epoch, offset=next_offset, step=position.step + 1)


def is_boundary(position: Position, first_step: int, segment_steps: int | None, within: int = 1) -> bool:
    """Whether workers may join or leave at `position`, in a generation that began at step `first_step`.

    With `within` above 1, the result is also true up to `within - 1` steps after a segment's end.
    """
    if position.offset == 0:
        return position.step != first_step
    steps_done = position.step - first_step
    return segment_steps is not None and steps_done >= segment_steps and steps_done % segment_steps < within
