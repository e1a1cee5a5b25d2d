"""Updates of several batches (`accumulate=K`): each epoch's batches are taken in groups of K, the last one shorter.

Membership changes between groups alone, so no update is of two memberships.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.batching import Batching, PerWorker

NOT_DUE = (
    "trainer.step() within the batches of an update (accumulate={group}): step only `if epoch.update_due:`, true after "
    "every {group} batches and at an epoch's last one"
)


def group_of(trainers: Sequence[Any], batching: Batching) -> int:
    """Batches of an update. Raises ValueError where trainers differ, or batches are not counted alike for ever."""
    groups = {trainer.accumulate for trainer in trainers}
    if len(groups) > 1:
        raise ValueError(
            f"trainers with accumulate={' and '.join(map(str, sorted(groups)))}: all sum up at the same batches, so "
            "give each the same"
        )
    group = int(groups.pop())
    if group > 1 and isinstance(batching, PerWorker):
        raise ValueError(
            f"accumulate={group} with batching=PerWorker(...): the number of batches in an epoch changes with the "
            "workers there, and groups of them with it. Use global_batch="
        )
    return group
