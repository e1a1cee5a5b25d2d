"""Read from the controller's audit trail which statuses the controller announced. The audit trail is used because
regular reads of the instances' tags may miss a short-lived status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from dyntrain.controller.adapters.items import trail_key, trail_of
from dyntrain.controller.core.decisions.actions import SetStatusTag
from dyntrain.controller.core.history.trail import ActionDone
from dyntrain.controller.local.pace import Deadline
from dyntrain.controller.loops.ports import TrailEntry

SECONDS_BETWEEN_READS = 0.5  # of the audit trail
Statuses = dict[str, list[tuple[float, Any]]]  # statuses by instance, with the time of each


def read_trail(dynamodb: Any, table: str, cluster: str) -> list[TrailEntry]:
    """The cluster's audit trail, oldest entry first. Raises ClientError or BotoCoreError when the table
    cannot be read.
    """
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": trail_key(cluster)["pk"]},
        ConsistentRead=True,
    )
    return [entry for page in pages for item in page["Items"] for entry in trail_of(item)]


def announced_statuses(entries: Iterable[TrailEntry]) -> Statuses:
    """The statuses that the controller announced for each instance. If the controller writes the same status again, the
    status is listed only once.
    """
    statuses: Statuses = {}
    for trail_entry in entries:
        entry = trail_entry.entry
        if isinstance(entry, ActionDone) and entry.kind == SetStatusTag.__name__:
            history = statuses.setdefault(entry.instance, [])
            if not history or history[-1][1] != entry.value:
                history.append((trail_entry.at, entry.value))
    return statuses


def wait_until_removed(
    read_entries: Callable[[], Sequence[TrailEntry]], instances: Collection[str], seconds: float
) -> Statuses:
    """Wait until the status REMOVED is announced for each of the `instances`, and return the statuses of all instances.
    The time limit is `seconds` on an idle host; after the limit, the statuses are returned without an error. The wait
    is needed because the controller announces a status before the controller writes the audit trail.
    """
    deadline = Deadline(seconds)
    while True:
        statuses = announced_statuses(read_entries())
        last_statuses = {instance: history[-1][1] for instance, history in statuses.items()}
        if all(last_statuses.get(instance) == "REMOVED" for instance in instances) or deadline.passed():
            return statuses
        time.sleep(SECONDS_BETWEEN_READS)
