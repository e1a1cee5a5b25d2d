"""Updates of several batches (`accumulate=K`): each epoch's batches form groups of K, the last one may be shorter.

Membership changes only between groups, so no update spans two memberships.
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
    """Batches per update. Raises ValueError if trainers differ, or the number of batches depends on the workers."""
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
