"""Groups of K batches that have one update (`accumulate=K`); an epoch's last group may be shorter.

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
    """Return the number of batches per update.

    Raises ValueError if trainers differ, or if the number of batches depends on the number of workers.
    """
    groups = {trainer.accumulate for trainer in trainers}
    if len(groups) > 1:
        raise ValueError(
            f"trainers have accumulate={' and '.join(map(str, sorted(groups)))}: give all trainers the same number, "
            "because all sum at the same batches"
        )
    group = int(groups.pop())
    if group > 1 and isinstance(batching, PerWorker):
        raise ValueError(
            f"accumulate={group} with batching=PerWorker(...): the number of batches in an epoch would change with "
            "the number of workers. Use global_batch="
        )
    return group
