"""Steps on one worker, from the begin of a batch to its result: the next step, the undoing of a void step, or a
boundary where workers may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.sharding import is_boundary
from dyntrain.training.worker.loop.agreed.settled import sum_accumulated_gradients
from dyntrain.training.worker.loop.batch.current_batch import (
    ACCUMULATES_BESIDE_ERROR,
    NOT_STEPPED_ERROR,
    NOT_UPDATED_ERROR,
    CurrentBatch,
)
from dyntrain.training.worker.loop.trainer import ElasticTrainer

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class Steps:
    """Steps of one loop, which change the loop's position and anchor."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._samples_taken = 0  # samples since the anchor
        self._has_begun = False

    def reset_samples(self) -> None:
        """Set the number of samples that this worker has taken since the anchor to 0, at a boundary."""
        self._samples_taken = 0

    def begin_batch(self) -> CurrentBatch:
        loop = self._loop
        batch, rows, spectates = loop.shares.divide_batch(loop.position, loop.rank, loop.workers)
        for row_values in loop.rows:
            row_values.begin_batch(rows)
        indices = batch[rows]
        own_indices = indices[:0] if spectates else indices
        loop.membership.intend(loop.position, own_indices)
        self._samples_taken += len(own_indices)
        samples = loop.shares.size(loop.position, loop.workers)
        accumulated_record = loop.state.own.get("accumulated")
        current_batch = CurrentBatch(indices, samples, spectates, accumulated_record, loop.config.local_batch_at_most)
        current_batch.is_first = not self._has_begun
        self._has_begun = True
        if spectates:
            current_batch.copy_arrays(loop.state)
        for trainer in loop.trainers:
            current_batch.mark_stale(trainer)
            current_batch.scale_by_share(trainer, loop.state)
        loop.undo.forwards.begin_batch(loop.state)
        if loop.trial is not None:
            loop.trial.begin_step(loop, rows, samples)
        return current_batch

    def finish_step(self, after: Position) -> None:
        """Move the loop's anchor to `after`, the position after the step, because the step cannot become
        void anymore.
        """
        loop = self._loop
        loop.anchor = after
        loop.state.drop_carried()
        loop.undo.drop_copies()

    def end_batch(self, batch: CurrentBatch) -> None:
        """End the batch: continue with the next step, or undo a void step.

        Raises RuntimeError if the script has not called its trainers as required.
        """
        loop = self._loop
        loop.current = None
        if batch.summed is not None and not self._is_void(batch):
            raise RuntimeError(NOT_UPDATED_ERROR)
        batch.restore_arrays(loop.state)
        self._conclude_batch(batch)
        position_before, position_after, is_update_due = loop.position, loop.position_after, loop.update_due
        is_step_undone = batch.void or (loop.membership.broken and loop.anchor != position_after)
        for rows in loop.rows:
            rows.end_batch(is_step_undone)
        if is_step_undone:
            self._undo_step()
        else:
            self._advance(batch, position_after)
        if is_step_undone or batch.updated:
            loop.undo.forwards.end_batch(is_step_undone)
        loop.losses.end_batch(forgets=is_step_undone or bool(batch.updated))
        self._end_step(is_update_due, epoch_ended=loop.position.epoch > position_before.epoch)

    def stop(self) -> None:
        """End the loop in mid-epoch, because the loop has made as many steps as the script asked for."""
        self._loop.membership.stopping = True
        self._handle_boundary(epoch_ended=False)

    # ---- the result of the batch

    def _is_void(self, batch: CurrentBatch) -> bool:
        """Whether the step is void, if the script has summed its gradients but has not made the update."""
        membership, is_only_trainer = self._loop.membership, len(self._loop.trainers) == 1
        return batch.void or (
            membership.broken and not membership.apply(self._loop.position_after, lambda: None, is_only_trainer)
        )

    def _conclude_batch(self, batch: CurrentBatch) -> None:
        """Decide the batch's result: a void step, a final step, or gradients that accumulate further.

        Raises RuntimeError if the script has not called `step` of all its trainers.
        """
        loop = self._loop
        if batch.summed is not None:
            batch.void = True  # a void sum may be NaN, and then a script may skip its update
        elif not batch.updated:
            if not loop.state.accumulated or (loop.group_size > 1 and loop.update_due):
                raise RuntimeError(NOT_STEPPED_ERROR)
            loop.state.own["accumulated"] = batch.accumulation_record
        elif any(_has_accumulated_gradients(trainer) for trainer in loop.trainers if trainer not in batch.updated):
            raise RuntimeError(ACCUMULATES_BESIDE_ERROR)
        elif not batch.void and len(loop.trainers) > 1:
            if loop.membership.reach(loop.position_after):
                self.finish_step(loop.position_after)
            else:
                batch.void = True

    def _advance(self, batch: CurrentBatch, position_after: Position) -> None:
        loop = self._loop
        loop.position = position_after
        loop.membership.stepped(position_after)
        if loop.anchor == position_after:
            loop.undo.drop_copies()
            self._samples_taken = 0
            loop.state.carried.resume(takes=False)
            if loop.trial is not None and batch.updated:
                loop.trial.end_step(loop)
            loop.undo.mark_state()

    def _undo_step(self) -> None:
        loop = self._loop
        loop.undo.restore_state()
        loop.membership.take_back(self._samples_taken)
        loop.position = loop.anchor

    # ---- what follows

    def _end_step(self, is_update_due: bool, epoch_ended: bool) -> None:
        loop = self._loop
        if loop.membership.broken and not epoch_ended:
            self._rejoin()
        elif not is_update_due:
            pass  # no boundary between the batches of one update
        elif loop.all_steps_made:
            loop.membership.stopping = True
            self._handle_boundary(epoch_ended)
        elif is_boundary(loop.position, loop.membership.first_step, loop.segment_steps, loop.group_size):
            self._handle_boundary(epoch_ended)

    def _rejoin(self) -> None:
        self._loop.arrive(self._loop.membership.rejoin(self._loop.position))

    def _handle_boundary(self, epoch_ended: bool) -> None:
        """Average the running statistics over the workers, and check in with the coordinator unless the epoch has
        ended.

        At an epoch's end, the running statistics are averaged before the script's validation, so that the validation
        uses the averages. At an epoch's end, the check-in, or the rejoin after a lost worker, comes after the script's
        validation. So values that the script sets in its validation, such as a learning rate, are part of the state
        that joiners receive.
        """
        loop = self._loop
        if loop.anchor != loop.position:
            self._sum_accumulated_gradients()
        if not loop.membership.broken and loop.config.average_statistics:
            loop.membership.average_statistics(loop.position)
        if loop.anchor != loop.position:
            self._undo_step()
            self._rejoin()
        elif epoch_ended:
            pass
        elif loop.membership.broken:
            self._rejoin()
        else:
            loop.check_in()

    def _sum_accumulated_gradients(self) -> None:
        """Sum accumulated gradients over all workers at a boundary, so that no gradients are lost with a worker."""
        loop = self._loop

        def on_success() -> None:
            loop.anchor = loop.position
            loop.undo.mark_state()

        sum_accumulated_gradients(loop.membership, loop.state, loop.trainers, loop.position, on_success)
        self._samples_taken = 0 if loop.anchor == loop.position else self._samples_taken
        loop.state.carried.resume(takes=loop.rank == 0)


def _has_accumulated_gradients(trainer: ElasticTrainer) -> bool:
    return any(
        param.grad_req == "add" and any(array._fresh_grad for array in param.list_data()) for param in trainer._params
    )
