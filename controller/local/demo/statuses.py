"""The statuses that the controller told people by the tag, from its audit trail: who looks at the tags now and then may
miss one that stood for a moment.
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

LOOK_SECONDS = 0.5
Told = dict[str, list[tuple[float, Any]]]  # statuses by instance, with the time of each


def trail(dynamodb: Any, table: str, cluster: str) -> list[TrailEntry]:
    """Oldest first. Raises ClientError or BotoCoreError."""
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": trail_key(cluster)["pk"]},
        ConsistentRead=True,
    )
    return [entry for page in pages for item in page["Items"] for entry in trail_of(item)]


def statuses_told(entries: Iterable[TrailEntry]) -> Told:
    """A tag that is written once more says nothing new."""
    told: Told = {}
    for stored in entries:
        entry = stored.entry
        if isinstance(entry, ActionDone) and entry.kind == SetStatusTag.__name__:
            history = told.setdefault(entry.instance, [])
            if not history or history[-1][1] != entry.value:
                history.append((stored.at, entry.value))
    return told


def once_removed(read: Callable[[], Sequence[TrailEntry]], instances: Collection[str], seconds: float) -> Told:
    """As soon as all `instances` are told to be removed: the trail of a pass is written after its actions. Otherwise
    what was told after `seconds` of an idle host.
    """
    deadline = Deadline(seconds)
    while True:
        told = statuses_told(read())
        last = {instance: history[-1][1] for instance, history in told.items()}
        if all(last.get(instance) == "REMOVED" for instance in instances) or deadline.passed():
            return told
        time.sleep(LOOK_SECONDS)
