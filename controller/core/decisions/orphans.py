"""Orphans: running instances that cost money and serve no job. An orphan carries the cluster's elastic or ownership
tag, or came from the cluster's launch template. Pure.

An orphan is reported after the policy's grace period. An orphan is terminated if the policy says so, the orphan carries
the ownership tag, and somebody had requested the orphan.
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
    """Since when the node has been an orphan, once the grace period is over; None for a node in use, stopped or
    protected.
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
    ack = node.facts.acks.status
    if ack is None or ack.value != standing.line:
        return None
    return ack.at if now - ack.at >= rules.policy.orphan_grace_seconds else None
