"""What each trainer's `step(n)` says, which is remembered: it is the same at every step of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.worker.loop.batch_size import Counts, divisor
from dyntrain.training.worker.loop.hand import Hand
from dyntrain.training.worker.loop.reduction import Total
from dyntrain.training.worker.loop.trainer import ElasticTrainer

ADDS_UP = (
    "step(epoch.sum(n)) after several batches: what a script counts over them itself is lost with a step that is void, "
    "and a worker that joins has none of it. Count in the job's memory, memory.words += epoch.sum(words) in every "
    "batch, and step(memory.words) with job.trainer(..., loss='own')"
)


OWN_SHARE = (
    "step(1) with loss='own', in a batch without epoch.sum(): what each worker divided by a number of its own samples "
    "does not add up to what one process would have. Leave the division out, and tell trainer.step() what it was "
    "divided by: a constant as it is, epoch.sum(n) for what is counted in the batch. A mean is "
    "loss='mean'"
)


class Divisors:
    def __init__(self, trainers: Sequence[ElasticTrainer], batching: Batching) -> None:
        self._trainers, self._batching = trainers, batching

    def of(self, trainer: ElasticTrainer, n: float, hand: Hand, full: int, own: dict[str, Any]) -> float:
        """What the sum of the gradients is divided by. `full`: samples of a full step over all workers; `own`:
        what travels with the state. Raises ValueError.
        """
        if isinstance(n, Total) and hand.batches > 1:
            raise ValueError(ADDS_UP)
        if trainer.loss_kind == "own" or (isinstance(n, Total) and trainer.loss_kind == "sum"):
            if not n > 0:
                raise ValueError(f"step({n:g}): must be above 0, and the same on every worker")
            if n == 1 and not hand.counted:
                raise ValueError(OWN_SHARE)
            return float(n)
        if trainer.loss_kind == "mean" and n == 1:
            return 1
        number = str(self._trainers.index(trainer))
        known = own.get("meanings", {})
        by, left = divisor(n, self._counts(hand, full), known.get(number))
        own["meanings"] = {**known, number: left}
        return by

    def _counts(self, hand: Hand, full: int) -> Counts:
        batch, batches = self._batching.batch, hand.batches
        here = len(hand.part)
        return Counts(
            nominal=(batch, batch * batches),
            full=(full, full * batches),
            own=(here, here if len(hand.parts) > 1 else hand.own_samples),
            all_=(hand.size, hand.samples),
            per_worker=isinstance(self._batching, PerWorker),
            group=self._trainers[0].accumulate,
        )
