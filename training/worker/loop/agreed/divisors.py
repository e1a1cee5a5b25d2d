"""Divisors of the summed gradients, from each trainer's `step(n)`; the meaning of `n` is remembered between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.worker.loop.agreed.batch_size import AS_IT_IS, Counts, NoMeaning, divisor, divisor_of_means
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.trainer import ElasticTrainer

SHORT_GROUP = "; accumulate=k, as an epoch's last update has fewer"
MADE_OF_A_SUM: list[str] = []  # in place of meanings: `n` itself is the divisor, and must be equal on all workers


def _means(trainer: ElasticTrainer, current: CurrentBatch) -> set[int]:
    """Return the possible numbers of means in a sum of losses: of one batch, of several batches, of each device."""
    return {1, trainer.accumulate, current.batches, len(trainer._contexts)}


def _mixed(current: CurrentBatch, workers: int, unsure: list[float], sure: list[float]) -> bool:
    """Whether the summed tags are the `unsure` tags of all unsure workers plus the `sure` tags of the other workers."""
    doubts = current.consensus.unsure_workers
    total = [doubts * one + (workers - doubts) * other for one, other in zip(unsure, sure, strict=True)]
    return 0 < doubts < workers and current.consensus.tagged == total


class Divisors:
    def __init__(self, trainers: Sequence[ElasticTrainer], batching: Batching) -> None:
        self._trainers, self._batching = trainers, batching

    def of(
        self, trainer: ElasticTrainer, n: float, current: CurrentBatch, full: int, own: dict[str, Any], singles: bool
    ) -> float:
        """Return the divisor of the summed gradients. Raises NoMeaning if `n` fits no meaning, or several.

        `full`: samples of a full step over all workers. `own`: part of the job's state that stores the meanings.
        `singles`: no worker has more than one sample.
        """
        try:
            return self._of(trainer, n, current, full, own, singles)
        except NoMeaning as error:
            adds_up = trainer.accumulate == 1 and any(p.grad_req == "add" for p in trainer._params)
            raise NoMeaning(error.code, **{**error.values, "more": SHORT_GROUP if adds_up else ""}) from None

    def _of(
        self, trainer: ElasticTrainer, n: float, current: CurrentBatch, full: int, own: dict[str, Any], singles: bool
    ) -> float:
        if isinstance(n, Total) and current.batches > 1:
            raise NoMeaning("DT403")
        number, meanings = str(self._trainers.index(trainer)), own.get("meanings", {})
        known = meanings.get(number)
        of_a_sum = MADE_OF_A_SUM if known is None else known
        counts = current.counted and current.batches == 1 and trainer.loss_kind == "sum"
        if trainer.loss_kind == "own" or (isinstance(n, Total) and trainer.loss_kind == "sum"):
            if not n > 0:
                raise NoMeaning("DT406", n=n)
            by, left = float(n), of_a_sum
        elif trainer.loss_kind == "mean":
            by, left, current.unsure[trainer] = divisor_of_means(
                n, self._counts(current, full), known, _means(trainer, current)
            )
        elif counts and n == 1 and known is None and singles:
            raise NoMeaning("DT404")
        elif counts and n == 1 and (known == MADE_OF_A_SUM or len(current.part) > 1):
            by, left = 1.0, of_a_sum  # `n` is max(1, epoch.sum(...)) with a sum of 0
        else:
            try:
                by, left = divisor(n, self._counts(current, full), known)
            except NoMeaning:
                if not (counts and n > 0):
                    raise
                by, left = float(n), of_a_sum
        if current.unsure.get(trainer) is None:
            own["meanings"] = {**meanings, number: left}
        return by

    def settled(
        self,
        trainer: ElasticTrainer,
        current: CurrentBatch,
        workers: int,
        alike: bool,
        tagged: Callable[[float], list[float]],
        own: dict[str, Any],
    ) -> float | None:
        """Return the divisor that all workers agree on after the sums; None if the workers' divisors differ.

        A worker whose `n` has two meanings has voted for the samples of its batch, and that it is unsure. `alike`:
        whether all workers' tags are equal. `tagged`: returns the tags of a worker with this divisor. Raises NoMeaning
        if all workers are unsure, unless `n` is 1.
        """
        number, meanings = str(self._trainers.index(trainer)), own.get("meanings", {})
        unsure, doubts = current.unsure.get(trainer), current.consensus.unsure_workers
        by = current.divides.get(trainer, 1.0)  # no divisor is known if a worker was lost in the sum that gives `n`
        if unsure is None:
            return (
                by if alike or any(_mixed(current, workers, tagged(one), tagged(by)) for one in current.taken) else None
            )
        if alike and 0 < doubts < workers:
            own["meanings"] = {**meanings, number: unsure[1]}
            return unsure[0]
        if not alike and not _mixed(current, workers, tagged(unsure[0]), tagged(by)):
            return None
        if doubts == workers and by != 1:
            raise NoMeaning("DT405", n=by)
        own["meanings"] = {**meanings, number: [AS_IT_IS]}
        return by

    def _counts(self, current: CurrentBatch, full: int) -> Counts:
        batch, batches = self._batching.batch, current.batches
        here = len(current.part)
        return Counts(
            nominal=(batch, batch * batches),
            full=(full, full * batches),
            own=(here, here if len(current.parts) > 1 else current.own_samples),
            all_=(current.size, current.samples),
            per_worker=isinstance(self._batching, PerWorker),
            group=self._trainers[0].accumulate,
        )
