"""Find the divisors of the summed gradients, from `n` in each trainer's `step(n)` and its meaning in earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.worker.loop.agreed.batch_size import (
    N_DIVIDES,
    SampleCounts,
    UnclearBatchSize,
    divisor_of_means,
    find_divisor,
)
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.trainer import ElasticTrainer

SHORT_GROUP_HINT = "; accumulate=k, as an epoch's last update has fewer"
NO_MEANINGS: list[str] = []  # in place of meanings: `n` itself is the divisor, and must be equal on all workers


def _counts_of_means(trainer: ElasticTrainer, batch: CurrentBatch) -> set[int]:
    """Return how many means a script may have added up to its loss: one in all, one for each batch, or one for each
    device.
    """
    return {1, trainer.accumulate, batch.batches, len(trainer._contexts)}


def _tags_mixed(batch: CurrentBatch, workers: int, unsure: list[float], sure: list[float]) -> bool:
    """Whether the summed tags are the `unsure` tags of all unsure workers plus the `sure` tags of all sure workers."""
    unsure_workers = batch.consensus.unsure_workers
    mixed_tags = [
        unsure_workers * unsure_tag + (workers - unsure_workers) * sure_tag
        for unsure_tag, sure_tag in zip(unsure, sure, strict=True)
    ]
    return 0 < unsure_workers < workers and batch.consensus.tagged == mixed_tags


class Divisors:
    def __init__(self, trainers: Sequence[ElasticTrainer], batching: Batching) -> None:
        self._trainers, self._batching = trainers, batching

    def divisor_of(
        self,
        trainer: ElasticTrainer,
        n: float,
        batch: CurrentBatch,
        full_samples: int,
        job_state: dict[str, Any],
        has_single_samples: bool,
    ) -> float:
        """Return the divisor of the summed gradients. Raises UnclearBatchSize if `n` has no meaning, or is ambiguous.

        `full_samples`: samples of a full step over all workers. `job_state`: the job's own state, in which the meanings
        of `n` are stored. `has_single_samples`: whether no worker has more than one sample.
        """
        try:
            return self._divisor_of(trainer, n, batch, full_samples, job_state, has_single_samples)
        except UnclearBatchSize as error:
            adds_gradients = trainer.accumulate == 1 and any(param.grad_req == "add" for param in trainer._params)
            raise UnclearBatchSize(
                error.code, **{**error.values, "more": SHORT_GROUP_HINT if adds_gradients else ""}
            ) from None

    def _divisor_of(
        self,
        trainer: ElasticTrainer,
        n: float,
        batch: CurrentBatch,
        full_samples: int,
        job_state: dict[str, Any],
        has_single_samples: bool,
    ) -> float:
        if isinstance(n, Total) and batch.batches > 1:
            raise UnclearBatchSize("DT403")
        trainer_number, meanings = str(self._trainers.index(trainer)), job_state.get("meanings", {})
        known_meanings = meanings.get(trainer_number)
        sum_meanings = NO_MEANINGS if known_meanings is None else known_meanings
        n_may_be_sum = batch.counted and batch.batches == 1 and trainer.loss_kind == "sum"
        if trainer.loss_kind == "own" or (isinstance(n, Total) and trainer.loss_kind == "sum"):
            if not n > 0:
                raise UnclearBatchSize("DT406", n=n)
            divisor_value, fitting_meanings = float(n), sum_meanings
        elif trainer.loss_kind == "mean":
            divisor_value, fitting_meanings, batch.unsure[trainer] = divisor_of_means(
                n, self._counts(batch, full_samples), known_meanings, _counts_of_means(trainer, batch)
            )
        elif n_may_be_sum and n == 1 and known_meanings is None and has_single_samples:
            raise UnclearBatchSize("DT404")
        elif n_may_be_sum and n == 1 and (known_meanings == NO_MEANINGS or len(batch.part) > 1):
            divisor_value, fitting_meanings = 1.0, sum_meanings  # `n` is max(1, epoch.sum(...)) with a sum of 0
        else:
            try:
                divisor_value, fitting_meanings = find_divisor(n, self._counts(batch, full_samples), known_meanings)
            except UnclearBatchSize:
                if not (n_may_be_sum and n > 0):
                    raise
                divisor_value, fitting_meanings = float(n), sum_meanings
        if batch.unsure.get(trainer) is None:
            job_state["meanings"] = {**meanings, trainer_number: fitting_meanings}
        return divisor_value

    def agreed_divisor(
        self,
        trainer: ElasticTrainer,
        batch: CurrentBatch,
        workers: int,
        tags_agree: bool,
        tags_for: Callable[[float], list[float]],
        job_state: dict[str, Any],
    ) -> float | None:
        """Return the divisor that all workers agree on after the sums, or None if the workers' divisors differ.

        A worker whose `n` has two meanings has voted for the divisor that a number of samples implies, and marked its
        vote as unsure. `tags_agree`: whether all workers' tags are equal. `tags_for`: a function that returns this
        worker's tags for a divisor. Raises UnclearBatchSize if all workers are unsure, unless `n` is 1.
        """
        trainer_number, meanings = str(self._trainers.index(trainer)), job_state.get("meanings", {})
        other_result, unsure_workers = batch.unsure.get(trainer), batch.consensus.unsure_workers
        divisor_value = batch.divides.get(trainer, 1.0)  # unknown if a worker was lost in the sum that gives `n`
        if other_result is None:
            votes = (tags_for(count) for count in batch.sample_counts)
            all_agree = tags_agree or any(_tags_mixed(batch, workers, vote, tags_for(divisor_value)) for vote in votes)
            return divisor_value if all_agree else None
        if tags_agree and 0 < unsure_workers < workers:
            job_state["meanings"] = {**meanings, trainer_number: other_result[1]}
            return other_result[0]
        if not tags_agree and not _tags_mixed(batch, workers, tags_for(other_result[0]), tags_for(divisor_value)):
            return None
        if unsure_workers == workers and divisor_value != 1:
            raise UnclearBatchSize("DT405", n=divisor_value)
        job_state["meanings"] = {**meanings, trainer_number: [N_DIVIDES]}
        return divisor_value

    def _counts(self, current_batch: CurrentBatch, full_samples: int) -> SampleCounts:
        batch_size, batches = self._batching.batch, current_batch.batches
        own_samples = len(current_batch.part)
        return SampleCounts(
            nominal=(batch_size, batch_size * batches),
            full=(full_samples, full_samples * batches),
            own=(own_samples, own_samples if len(current_batch.parts) > 1 else current_batch.own_samples),
            all_=(current_batch.size, current_batch.samples),
            per_worker=isinstance(self._batching, PerWorker),
            group=self._trainers[0].accumulate,
        )
