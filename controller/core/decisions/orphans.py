"""Orphans: running instances that cost money and serve no job. An orphan carries the cluster's elastic or ownership
tag, or came from the cluster's launch template. Pure.

An alarm reports an orphan after the grace period of the cluster's policy. The controller terminates an orphan only if
the cluster's policy allows the termination, the orphan carries the ownership tag, and somebody had asked the orphan to
join.
"""

from __future__ import annotations

from dyntrain.controller.core.decisions.status import Standing
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import Rules, View

_ORPHAN_REASONS = (
    Reason.NO_BOOTSTRAP,
    Reason.PREPARING,
    Reason.PREPARE_FAILED,
    Reason.WORKER_FAILED,
    Reason.GROUP_REFUSES,
)


def orphaned_since(standing: Standing, node: View, rules: Rules, now: float) -> float | None:
    """The time since when the node has been an orphan. Returns None within the grace period, for base nodes, for
    stopped nodes, and for nodes in use.
    """
    if (
        node.base
        or node.terminated
        or node.state in ("stopping", "stopped", "shutting-down")
        or node.unseen
        or node.phase in ("warm", "terminating")
    ):
        return None
    if not (node.elastic or node.owned or node.launched):
        return None
    if (
        standing.reason not in _ORPHAN_REASONS and standing.status != "REMOVED"
    ):  # REMOVED: the node left the job, but still runs
        return None
    status_ack = node.facts.acks.status
    if status_ack is None or status_ack.value != standing.line:
        return None
    return status_ack.at if now - status_ack.at >= rules.policy.orphan_grace_seconds else None
