"""A table of the allowed transitions between the statuses of a node, with the causes that allow each transition. Pure.

Each change of a node's status tag follows an allowed transition. If the tag returns to an earlier status without a
cause, the controller has written an outdated status. A node may skip statuses, because several changes may happen while
the controller is busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from dyntrain.controller.contract.messages import Status


class Cause(Enum):
    CONTINUATION = "the transition completes the last request, and needs no other cause"
    JOIN_REQUESTED = "the node was asked to join: it was tagged (again) or launched, or its group was enlarged"
    MUST_LEAVE = "the node has to leave: untagged, its group made smaller, taken by AWS, failed, or the job is over"
    RESTARTED = "the machine or its bootstrap restarted or failed"
    LOST_BY_JOB = "the job lost the node, has no place for it, or stopped reporting"


# sets with one cause each, which the table combines
_BY_CONTINUATION = frozenset({Cause.CONTINUATION})
_BY_JOIN_REQUEST = frozenset({Cause.JOIN_REQUESTED})
_BY_MUST_LEAVE = frozenset({Cause.MUST_LEAVE})
_BY_RESTART = frozenset({Cause.RESTARTED})
_BY_LOSS = frozenset({Cause.LOST_BY_JOB})

# None: the instance has no status tag yet. All other transitions are errors.
ARROWS: Mapping[tuple[Status | None, Status], frozenset[Cause]] = {
    (None, "PREPARE_FAILED"): _BY_RESTART,
    (None, "ADD_QUEUED"): _BY_JOIN_REQUEST,
    (None, "ADDED"): _BY_JOIN_REQUEST,
    (None, "REMOVAL_QUEUED"): _BY_MUST_LEAVE,
    (None, "REMOVED"): _BY_MUST_LEAVE,
    ("PREPARE_FAILED", "ADD_QUEUED"): _BY_RESTART | _BY_JOIN_REQUEST,
    ("PREPARE_FAILED", "ADDED"): _BY_RESTART | _BY_JOIN_REQUEST,
    ("PREPARE_FAILED", "REMOVAL_QUEUED"): _BY_MUST_LEAVE,
    ("PREPARE_FAILED", "REMOVED"): _BY_MUST_LEAVE,
    ("ADD_QUEUED", "PREPARE_FAILED"): _BY_RESTART,
    ("ADD_QUEUED", "ADDED"): _BY_CONTINUATION,
    ("ADD_QUEUED", "REMOVAL_QUEUED"): _BY_MUST_LEAVE,
    ("ADD_QUEUED", "REMOVED"): _BY_MUST_LEAVE,
    ("ADDED", "PREPARE_FAILED"): _BY_RESTART,
    ("ADDED", "ADD_QUEUED"): _BY_LOSS | _BY_JOIN_REQUEST,
    ("ADDED", "REMOVAL_QUEUED"): _BY_MUST_LEAVE,
    ("ADDED", "REMOVED"): _BY_MUST_LEAVE,
    ("REMOVAL_QUEUED", "PREPARE_FAILED"): _BY_RESTART,
    ("REMOVAL_QUEUED", "ADD_QUEUED"): _BY_JOIN_REQUEST,
    ("REMOVAL_QUEUED", "ADDED"): _BY_JOIN_REQUEST,
    ("REMOVAL_QUEUED", "REMOVED"): _BY_CONTINUATION,
    ("REMOVED", "PREPARE_FAILED"): _BY_RESTART,
    ("REMOVED", "ADD_QUEUED"): _BY_JOIN_REQUEST | _BY_RESTART,
    ("REMOVED", "ADDED"): _BY_JOIN_REQUEST | _BY_RESTART,
    ("REMOVED", "REMOVAL_QUEUED"): _BY_MUST_LEAVE,
}


def unexplained_statuses(
    statuses: Iterable[tuple[float, Status]], cause_events: Iterable[tuple[float, Cause]]
) -> list[str]:
    """One sentence for each of an instance's `statuses` that no allowed transition explains. `statuses` are pairs of a
    time and a status, oldest first. `cause_events` are pairs of a time and a cause, oldest first.

    Each cause in `cause_events` explains at most one transition. Once a cause has explained a transition, older causes
    explain no further transition. For example, one request to join explains only one return of the instance to the job.
    """
    unused_causes, problems = list(cause_events), list[str]()
    old_status: Status | None = None
    for status_at, new_status in statuses:
        allowed_causes = ARROWS.get((old_status, new_status), frozenset())
        if new_status != old_status and Cause.CONTINUATION not in allowed_causes:
            cause_index = next(
                (
                    index
                    for index, (cause_at, cause) in enumerate(unused_causes)
                    if cause in allowed_causes and cause_at <= status_at
                ),
                None,
            )
            if cause_index is None:
                allowed_text = (
                    "; or ".join(cause.value for cause in Cause if cause in allowed_causes) or "no cause allows this"
                )
                problems.append(
                    f"{old_status or 'no status'} was followed by {new_status}, without its cause: {allowed_text}"
                )
            else:
                del unused_causes[: cause_index + 1]
        old_status = new_status
    return problems
