"""Update the weights: sum gradients over all workers, check that the workers agree, and divide the sums.

The step becomes void if a worker is lost during the sum, the check or the update. In a void step, the script continues
to the end of its batch, whose results are then undone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.arrays import number
from dyntrain.training.worker.loop.agreed.batch_size import UnclearBatchSize
from dyntrain.training.worker.loop.agreed.divisors import Divisors
from dyntrain.training.worker.loop.agreed.rates import DIVISOR, TRAINED, tags_of, unequal_rates, update_values
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.agreed.trained import known_parameters, store_trained_parameters
from dyntrain.training.worker.loop.batch.consensus import StepConsensus, consensus_key
from dyntrain.training.worker.loop.batch.current_batch import (
    OUTSIDE_LOOP_ERROR,
    CurrentBatch,
    gradients_of,
    has_gradient,
)
from dyntrain.training.worker.loop.batch.groups import UPDATE_NOT_DUE_ERROR
from dyntrain.training.worker.loop.checks.factors import Terms
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.loop.probe_driver import REFUSED_BY_ANOTHER_ERROR
from dyntrain.training.worker.loop.record.fingerprints import fingerprint, fingerprints_agree
from dyntrain.training.worker.loop.schedule import WorkerRates, worker_rate
from dyntrain.training.worker.loop.trainer import ElasticTrainer
from dyntrain.training.worker.loop.undone.voids import VoidSteps
from dyntrain.training.worker.refused import Refused, RefusedByAll
from dyntrain.training.worker.state.training_state import gradient_key

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

log = logging.getLogger(__name__)
SUMMED_TWICE_ERROR = (
    "a trainer can sum and update once for each batch of epoch.batches(...), and each sum is followed by its update"
)
SECOND_TRAINER_ERROR = (
    "trainer.allreduce_grads() was called for a second trainer before the first trainer's update: update after each "
    "sum. A norm over the gradients of several trainers needs one trainer with all parameters"
)
VOID_WARNING = "step %d is void in the sum of trainer %d of %d: a worker was lost, or stepped another trainer"
NOT_SUMMED_ERROR = "trainer.update() was called without trainer.allreduce_grads() before it: write trainer.step(n)"


class Updates:
    """Gradient sums and weight updates of the trainers that one loop over epochs has at its begin."""

    def __init__(self, loop: TrainingLoop, config: LoopConfig) -> None:
        self._loop = loop
        self._divisors = Divisors(loop.trainers, config.batching)
        self.rates = WorkerRates(config.batching, loop.trainers, config.samples)
        self._voids = VoidSteps()

    def _current_batch(self, call: str) -> CurrentBatch:
        if self._loop.current is None:
            raise RuntimeError(OUTSIDE_LOOP_ERROR.format(what=call))
        return self._loop.current

    def divisor(self, trainer: ElasticTrainer, n: float) -> float:
        """Return the divisor of the summed gradients that `n` in `trainer.step(n)` or `trainer.update(n)` implies.
        Raises ValueError if `n` implies no divisor, or several.

        `n` may be an array of one number.
        """
        loop, batch = self._loop, self._current_batch("step()")
        if loop.probe_child is not None:
            return 1.0
        n = n if isinstance(n, Total) else number(n)
        if batch.void or (math.isnan(n) and loop.membership.broken):
            return 1.0  # `n` may be the result of a sum in which a worker was lost
        has_single_samples = batch.size <= loop.workers
        try:
            divisor_value = self._divisors.divisor_of(
                trainer, n, batch, loop.step_samples, loop.state.own, has_single_samples
            )
        except UnclearBatchSize as error:
            loop.findings.find(error.code, **error.values)
            raise Refused(loop.refusal) from None
        batch.divides[trainer] = divisor_value
        return divisor_value

    # ---- the sum

    def exchange(self, trainer: ElasticTrainer) -> None:
        """Sum the trainer's gradients over all workers.

        Raises RuntimeError if the trainer must not sum its gradients now, such as twice in a batch. Raises ValueError
        if the script's loss is not of the kind that the trainer's `loss` declares.
        """
        loop, batch = self._loop, self._current_batch("allreduce_grads()")
        if trainer in batch.updated or batch.summed is not None:
            raise RuntimeError(SUMMED_TWICE_ERROR if batch.summed in (None, trainer) else SECOND_TRAINER_ERROR)
        batch.summed = trainer
        if not loop.update_due:
            raise RuntimeError(UPDATE_NOT_DUE_ERROR.format(group=loop.group_size))
        loop.losses.report_losses_of(trainer)
        if loop.probe_child is not None:
            loop.probe_child.record_gradients(loop, batch, trainer)
            return
        loop.running_statistics.report_changes()
        gradient_factors = loop.gradients.take_factors(trainer)
        if batch.refused and batch.is_first:
            raise Refused(loop.refusal)
        if len(batch.parts) > 1:
            batch.buffer_gradients(trainer)
        if batch.void or batch.has_next_part:
            return
        self._voids.refuse(loop.position.step, loop.workers)
        self._prepare_consensus(trainer, batch, gradient_factors)
        if loop.trial is not None:
            loop.trial.kill_if_planned(loop, "before")
        batch.void = not self._sum_gradients(trainer, batch)
        if batch.void:
            self._count_void_step(trainer)

    def _prepare_consensus(self, trainer: ElasticTrainer, batch: CurrentBatch, gradient_factors: Terms) -> None:
        """Prepare the numbers that are summed together with the gradients, to show whether all workers would update
        equally.

        `gradient_factors`: factors by which the script has multiplied its gradients.
        """
        loop, step = self._loop, self._loop.position.step
        terms = loop.losses.factors.take_terms(trainer)
        may_add_terms = trainer.loss_is_declared and trainer.loss_kind == "sum"
        batch.fingerprint = fingerprint(gradient_factors if may_add_terms else terms | gradient_factors, step)
        other_result = batch.unsure.get(trainer) if trainer in batch.divides else None
        batch.rates = update_values(trainer, other_result[0] if other_result else batch.divides.get(trainer))
        flags = [0.0] * len(loop.state.equal) if batch.updated else loop.undo.forwards.flags(loop.state)
        refuses, parameter_tags = loop.refusal is not None, tags_of(step, {TRAINED: batch.rates[TRAINED]})
        batch.consensus = StepConsensus(
            step,
            tags_of(step, batch.rates),
            parameter_tags,
            batch.fingerprint,
            unsure=other_result is not None,
            refuses=refuses,
            has_samples=batch.prepare_sum(trainer, loop.state),
            flags=flags,
        )
        if loop.membership.shared:
            batch.consensus.convert_to_mxnet()

    def _sum_gradients(self, trainer: ElasticTrainer, batch: CurrentBatch) -> bool:
        """Sum over all workers: the gradients, the numbers that show whether the workers agree, and the values of
        `job.rows`.

        Returns False if the forming of a new generation (group of workers) interrupted the sums.
        """
        loop, shared = self._loop, self._loop.membership.shared
        trainer_number, job_state = loop.trainers.index(trainer), loop.state.own
        trained_numbers = frozenset(index for index, param in enumerate(trainer._params) if has_gradient(param))
        pushed_numbers = known_parameters(job_state, trainer_number) if shared else trained_numbers
        extra_arrays = [(consensus_key(trainer_number), [batch.consensus.vote])]
        batch.carried = [] if batch.updated else loop.rows  # rows are summed once per step
        for rows in batch.carried:
            extra_arrays += [
                (key, [array]) for key, array in rows.own_share(batch.size, not batch.spectates, loop.rank == 0)
            ]
        if not self._push_gradients(trainer, pushed_numbers, extra_arrays if shared else [], aside=not pushed_numbers):
            return False
        if not shared or not batch.consensus.sums_same_parameters(loop.workers):
            return True  # `apply` raises the error if steps or parameters differ
        store_trained_parameters(job_state, trainer_number, trained_numbers)
        return trained_numbers <= pushed_numbers or self._push_gradients(
            trainer, trained_numbers - pushed_numbers, [], aside=bool(pushed_numbers)
        )

    def _push_gradients(
        self,
        trainer: ElasticTrainer,
        param_numbers: frozenset[int],
        extra_arrays: list[tuple[str, list[Any]]],
        aside: bool,
    ) -> bool:
        membership, trainer_number = self._loop.membership, self._loop.trainers.index(trainer)
        gradients = [
            (gradient_key(trainer_number, index), gradients_of(trainer._params[index]))
            for index in sorted(param_numbers)
        ]

        def push_arrays() -> None:
            for index, (key, arrays) in enumerate(gradients):
                membership.kvstore.pushpull(key, arrays, priority=-index)
            for key, arrays in extra_arrays:
                membership.kvstore.pushpull(key, arrays)

        pushes = [*gradients, *extra_arrays]
        return membership.exchange([key for key, _ in pushes], push_arrays, [arrays[0] for _, arrays in pushes], aside)

    def _count_void_step(self, trainer: ElasticTrainer) -> None:
        loop = self._loop
        if len(loop.trainers) > 1:
            self._voids.add(loop.position.step, loop.workers)
            log.warning(VOID_WARNING, loop.position.step, loop.trainers.index(trainer) + 1, len(loop.trainers))

    # ---- what follows from it

    def apply(self, trainer: ElasticTrainer, n: float, update: Callable[[float], None]) -> None:
        """Call `update` with the divisor that `n` implies, unless a worker was lost and the step is void.

        All workers raise ValueError if any worker refuses the script, and UnequalRates if the workers' updates would
        differ.
        """
        loop, batch = self._loop, self._current_batch("update()")
        self.divisor(trainer, n)
        if batch.summed is not trainer:
            raise RuntimeError(NOT_SUMMED_ERROR)
        batch.summed = None
        batch.updated.append(trainer)
        if batch.void or batch.has_next_part or loop.probe_child is not None:
            return
        if loop.trial is not None:
            loop.trial.kill_if_planned(loop, "after")
        is_only_trainer, workers_agree = len(loop.trainers) == 1, [True]

        def make_update() -> None:
            divisor_value = self._agreed_divisor(trainer, batch)
            workers_agree[0] = divisor_value is not None and fingerprints_agree(batch.consensus.fingerprints)
            if (
                divisor_value is None
                or not workers_agree[0]
                or batch.consensus.refused
                or loop.state.scalars.scheduler_error()
            ):
                return
            loop.state.optimizer_states.recreate_unused(trainer)
            if not is_only_trainer:
                loop.undo.back_up(trainer)
            loop.undo.forwards.store_written_indices(loop.state, batch.consensus.flagged)
            for rows in batch.carried:
                rows.take_sums()
            loop.state.optimizer_states.scale_momentum(self.rates.advance(trainer, batch.samples), trainer)
            with worker_rate(trainer):
                update(divisor_value)
            if loop.trial is not None:
                loop.trial.record_gradients(loop, trainer)
            if is_only_trainer:
                loop.steps.finish_step(loop.position_after)

        batch.void = not loop.membership.apply(loop.position_after, make_update, reaches=is_only_trainer)
        if batch.void:
            self._count_void_step(trainer)
            return
        if not workers_agree[0]:
            raise unequal_rates(
                loop.membership, loop.anchor, loop.trainers.index(trainer), batch.rates, batch.fingerprint
            )
        if batch.consensus.refused:
            raise RefusedByAll(loop.refusal or REFUSED_BY_ANOTHER_ERROR)
        if scheduler_error := loop.state.scalars.scheduler_error():
            raise Refused(scheduler_error)

    def _agreed_divisor(self, trainer: ElasticTrainer, batch: CurrentBatch) -> float | None:
        """Return the divisor of the summed gradients, or None if the workers' divisors differ.

        Raises ValueError if the meaning of `n` in `trainer.step(n)` is ambiguous on all workers.
        """
        loop, step = self._loop, self._loop.position.step
        workers = loop.workers if loop.membership.shared else 1
        try:
            return self._divisors.agreed_divisor(
                trainer,
                batch,
                workers,
                batch.read_sums(trainer, workers),
                lambda divides: tags_of(step, {**batch.rates, DIVISOR: float(divides)}),
                loop.state.own,
            )
        except UnclearBatchSize as error:
            raise RefusedByAll(loop.findings.find(error.code, **error.values)) from None
