"""Groups of K batches that have one update (`accumulate=K`); an epoch's last group may have fewer batches.

Membership changes only between groups, so all batches of an update have the same workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.batching import Batching, PerWorker

UPDATE_NOT_DUE_ERROR = (
    "trainer.step() within the batches of an update (accumulate={group}): step only `if epoch.update_due:`, true after "
    "every {group} batches and at an epoch's last one"
)


def batches_per_update(trainers: Sequence[Any], batching: Batching) -> int:
    """Return the number of batches per update.

    Raises ValueError if the trainers have different values of `accumulate`, or a value above 1 with `PerWorker`
    batches.
    """
    batch_counts = {trainer.accumulate for trainer in trainers}
    if len(batch_counts) > 1:
        raise ValueError(
            f"trainers have accumulate={' and '.join(map(str, sorted(batch_counts)))}: give all trainers the same "
            "number, because all sum at the same batches"
        )
    batch_count = int(batch_counts.pop())
    if batch_count > 1 and isinstance(batching, PerWorker):
        raise ValueError(
            f"accumulate={batch_count} with batching=PerWorker(...): the number of batches in an epoch would "
            "change with the number of workers. Use global_batch="
        )
    return batch_count
