"""Implementation of `epoch.sum` and `epoch.reduce`, with checks that a script calls each of the two at an allowed
place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dyntrain.training.worker.loop.agreed.reduction import Total, reduce, sum_up
from dyntrain.training.worker.loop.batch.parts import REDUCED_IN_BATCH_ERROR, SUMMED_LATE_ERROR, SUMMED_OUTSIDE_ERROR

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class Totals:
    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop

    def reduce(self, number: int, name: str, total: float, count: float | None) -> float:
        """Return the sum of `total` over all workers; with `count`, the sum of `total` divided by the sum of `count`.

        Returns NaN on all workers if not all workers make this call.

        After the end of the job, this method returns NaN. Not all workers make this call if the present generation
        (group of workers) began after epoch `number`, because joiners do not run that epoch. If the generation began in
        mid-epoch, only joiners run the script's lines before the batches.
        """
        loop, batch = self._loop, self._loop.current
        if loop.probe_child is not None:
            return loop.probe_child.add_total(total if count is None else total / count if count else math.nan)
        if loop.membership.over:
            return math.nan
        is_before_batches = batch is None and loop.position.step == loop.membership.first_step
        if is_before_batches and (loop.position.epoch > number or loop.position.offset):
            return math.nan
        if batch is not None and loop.divides_batches:
            raise RuntimeError(REDUCED_IN_BATCH_ERROR)
        spectates = batch is not None and batch.spectates
        return reduce(loop.membership, loop.anchor, name, (0.0 if spectates else total), count, spectates)

    def sum(self, value: float) -> Total:
        """Return the sum of `value` over all workers, which all call this method for their shares of the current batch.

        If a worker is lost meanwhile, the step is void, and the returned number has no meaning.
        """
        loop, batch = self._loop, self._loop.current
        if batch is None:
            raise RuntimeError(SUMMED_OUTSIDE_ERROR)
        if loop.divides_batches:
            raise RuntimeError(REDUCED_IN_BATCH_ERROR)
        if loop.probe_child is not None:
            return loop.probe_child.add_total(value)
        if loop.anchor == loop.position_after:
            raise RuntimeError(SUMMED_LATE_ERROR)  # a final step cannot be undone if a worker is lost in this sum
        batch.counted = True
        own_value, sum_name = (0.0 if batch.spectates else value), f"epoch.sum() in step {loop.position.step}"
        sums = None if batch.void else sum_up(loop.membership, loop.anchor, sum_name, own_value, 0.0)
        batch.void = sums is None
        return Total((value or 1.0) if sums is None else sums[0])
