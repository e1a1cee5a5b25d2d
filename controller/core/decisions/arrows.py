"""The allowed transitions between statuses, and the cause that each transition needs, as data. Pure.

The status tag follows these transitions. A status that returns without a cause is an old status that was written late.
Statuses may be skipped while the controller is busy.
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


_COURSE, _JOIN, _LET_GO = (
    frozenset({Cause.CONTINUATION}),
    frozenset({Cause.JOIN_REQUESTED}),
    frozenset({Cause.MUST_LEAVE}),
)
_RESTART, _LOST = frozenset({Cause.RESTARTED}), frozenset({Cause.LOST_BY_JOB})

# None: the instance has no status tag yet. All other transitions are errors.
ARROWS: Mapping[tuple[Status | None, Status], frozenset[Cause]] = {
    (None, "PREPARE_FAILED"): _RESTART,
    (None, "ADD_QUEUED"): _JOIN,
    (None, "ADDED"): _JOIN,
    (None, "REMOVAL_QUEUED"): _LET_GO,
    (None, "REMOVED"): _LET_GO,
    ("PREPARE_FAILED", "ADD_QUEUED"): _RESTART | _JOIN,
    ("PREPARE_FAILED", "ADDED"): _RESTART | _JOIN,
    ("PREPARE_FAILED", "REMOVAL_QUEUED"): _LET_GO,
    ("PREPARE_FAILED", "REMOVED"): _LET_GO,
    ("ADD_QUEUED", "PREPARE_FAILED"): _RESTART,
    ("ADD_QUEUED", "ADDED"): _COURSE,
    ("ADD_QUEUED", "REMOVAL_QUEUED"): _LET_GO,
    ("ADD_QUEUED", "REMOVED"): _LET_GO,
    ("ADDED", "PREPARE_FAILED"): _RESTART,
    ("ADDED", "ADD_QUEUED"): _LOST | _JOIN,
    ("ADDED", "REMOVAL_QUEUED"): _LET_GO,
    ("ADDED", "REMOVED"): _LET_GO,
    ("REMOVAL_QUEUED", "PREPARE_FAILED"): _RESTART,
    ("REMOVAL_QUEUED", "ADD_QUEUED"): _JOIN,
    ("REMOVAL_QUEUED", "ADDED"): _JOIN,
    ("REMOVAL_QUEUED", "REMOVED"): _COURSE,
    ("REMOVED", "PREPARE_FAILED"): _RESTART,
    ("REMOVED", "ADD_QUEUED"): _JOIN | _RESTART,
    ("REMOVED", "ADDED"): _JOIN | _RESTART,
    ("REMOVED", "REMOVAL_QUEUED"): _LET_GO,
}


def unexplained_statuses(
    statuses: Iterable[tuple[float, Status]], cause_events: Iterable[tuple[float, Cause]]
) -> list[str]:
    """The statuses of one instance that no allowed transition explains, with one sentence for each status. The
    arguments are pairs of a time and a value, oldest first.

    Each cause explains one transition and uses up all earlier causes. So an instance that was asked to join once comes
    back only once.
    """
    causes, problems = list(cause_events), list[str]()
    before: Status | None = None
    for at, after in statuses:
        allowed = ARROWS.get((before, after), frozenset())
        if after != before and Cause.CONTINUATION not in allowed:
            cause_index = next(
                (index for index, (cause_at, cause) in enumerate(causes) if cause in allowed and cause_at <= at), None
            )
            if cause_index is None:
                why = "; or ".join(cause.value for cause in Cause if cause in allowed) or "no cause allows this"
                problems.append(f"{before or 'no status'} was followed by {after}, without its cause: {why}")
            else:
                del causes[: cause_index + 1]
        before = after
    return problems
