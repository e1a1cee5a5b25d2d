"""Which samples each worker takes in each step: a pure function of (seed, epoch, position, members).

The samples of an epoch are a permutation of `range(samples)` drawn from (seed, epoch). A step takes the next
`global_batch` of it, the last step of an epoch what is left. A worker's share is a contiguous slice by its number. So
whatever the membership does, every index is taken exactly once an epoch: nothing is padded, and nothing is dropped but
what a script itself discards.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from dyntrain.training.protocol.messages import Position

Indices = npt.NDArray[np.int64]


def epoch_order(samples: int, seed: int, epoch: int) -> Indices:
    """The order of an epoch, shape (samples,). PCG64's stream is stable over numpy releases, so a job resumed elsewhere
    sees the same order.
    """
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples)


def batch_size(samples: int, global_batch: int, offset: int) -> int:
    """How many samples the step at `offset` takes over all workers: `global_batch`, less in the last step."""
    return min(global_batch, samples - offset)


def share(order: Indices, global_batch: int, offset: int, number: int, workers: int, whole: int = 1) -> Indices:
    """The slice of the step at `offset` for worker `number` of `workers`, cut into `whole` samples and multiples of
    them; empty when there are fewer of these than workers.
    """
    if not 0 <= number < workers:
        raise ValueError(f"worker number {number} is not in 0..{workers - 1}")
    pieces = batch_size(len(order), global_batch, offset) // whole
    first, following = number * pieces // workers, (number + 1) * pieces // workers
    return order[offset + first * whole : offset + following * whole]


def parts(indices: Indices, at_most: int | None) -> list[Indices]:
    """A share in parts of nearly equal size, none larger than `at_most`."""
    return [indices] if at_most is None else np.array_split(indices, -(-len(indices) // at_most))


def after_step(position: Position, samples: int, global_batch: int) -> Position:
    """The position one step later; the epoch's end is the start of the next epoch."""
    offset = position.offset + batch_size(samples, global_batch, position.offset)
    if offset == samples:
        return Position(epoch=position.epoch + 1, offset=0, step=position.step + 1)
    return Position(epoch=position.epoch, offset=offset, step=position.step + 1)


def is_boundary(position: Position, first_step: int, segment_steps: int | None, within: int = 1) -> bool:
    """Whether membership may change at `position`, in a generation that began at step `first_step`; or might have been
    able to `within` so many steps before, where there was a reason to wait.
    """
    if position.offset == 0:
        return position.step != first_step
    made = position.step - first_step
    return segment_steps is not None and made >= segment_steps and made % segment_steps < within
