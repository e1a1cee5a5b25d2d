"""A table of the allowed transitions between the statuses of a node, with the causes that allow each transition. Pure.

Each change of a node's status tag follows an allowed transition. If the status tag returns to an earlier status without
a cause, the controller has written an outdated status. A node may skip statuses, because several changes may happen
while the controller is busy.
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
_CONTINUATION_CAUSES = frozenset({Cause.CONTINUATION})
_JOIN_CAUSES = frozenset({Cause.JOIN_REQUESTED})
_LEAVE_CAUSES = frozenset({Cause.MUST_LEAVE})
_RESTART_CAUSES = frozenset({Cause.RESTARTED})
_LOSS_CAUSES = frozenset({Cause.LOST_BY_JOB})

# None: the instance has no status tag yet. All other transitions are errors.
TRANSITION_CAUSES: Mapping[tuple[Status | None, Status], frozenset[Cause]] = {
    (None, "PREPARE_FAILED"): _RESTART_CAUSES,
    (None, "ADD_QUEUED"): _JOIN_CAUSES,
    (None, "ADDED"): _JOIN_CAUSES,
    (None, "REMOVAL_QUEUED"): _LEAVE_CAUSES,
    (None, "REMOVED"): _LEAVE_CAUSES,
    ("PREPARE_FAILED", "ADD_QUEUED"): _RESTART_CAUSES | _JOIN_CAUSES,
    ("PREPARE_FAILED", "ADDED"): _RESTART_CAUSES | _JOIN_CAUSES,
    ("PREPARE_FAILED", "REMOVAL_QUEUED"): _LEAVE_CAUSES,
    ("PREPARE_FAILED", "REMOVED"): _LEAVE_CAUSES,
    ("ADD_QUEUED", "PREPARE_FAILED"): _RESTART_CAUSES,
    ("ADD_QUEUED", "ADDED"): _CONTINUATION_CAUSES,
    ("ADD_QUEUED", "REMOVAL_QUEUED"): _LEAVE_CAUSES,
    ("ADD_QUEUED", "REMOVED"): _LEAVE_CAUSES,
    ("ADDED", "PREPARE_FAILED"): _RESTART_CAUSES,
    ("ADDED", "ADD_QUEUED"): _LOSS_CAUSES | _JOIN_CAUSES,
    ("ADDED", "REMOVAL_QUEUED"): _LEAVE_CAUSES,
    ("ADDED", "REMOVED"): _LEAVE_CAUSES,
    ("REMOVAL_QUEUED", "PREPARE_FAILED"): _RESTART_CAUSES,
    ("REMOVAL_QUEUED", "ADD_QUEUED"): _JOIN_CAUSES,
    ("REMOVAL_QUEUED", "ADDED"): _JOIN_CAUSES,
    ("REMOVAL_QUEUED", "REMOVED"): _CONTINUATION_CAUSES,
    ("REMOVED", "PREPARE_FAILED"): _RESTART_CAUSES,
    ("REMOVED", "ADD_QUEUED"): _JOIN_CAUSES | _RESTART_CAUSES,
    ("REMOVED", "ADDED"): _JOIN_CAUSES | _RESTART_CAUSES,
    ("REMOVED", "REMOVAL_QUEUED"): _LEAVE_CAUSES,
}


def unexplained_statuses(
    statuses: Iterable[tuple[float, Status]], cause_events: Iterable[tuple[float, Cause]]
) -> list[str]:
    """One sentence for each of an instance's `statuses` that no allowed transition explains. `statuses` are pairs of a
    time and a status, oldest first. `cause_events` are pairs of a time and a cause, oldest first.

    Each cause in `cause_events` explains at most one transition. Once a cause has explained a transition, older causes
    explain no further transition. For example, one request to join explains only one return of the instance to the job.
    """
    unused_causes, status_problems = list(cause_events), list[str]()
    old_status: Status | None = None
    for status_at, new_status in statuses:
        allowed_causes = TRANSITION_CAUSES.get((old_status, new_status), frozenset())
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
                status_problems.append(
                    f"{old_status or 'no status'} was followed by {new_status}, without its cause: {allowed_text}"
                )
            else:
                del unused_causes[: cause_index + 1]
        old_status = new_status
    return status_problems
