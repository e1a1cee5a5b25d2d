"""Instances that cost money and that nobody wants: they run, serve no job, and carry the cluster's elastic or ownership
tag or came from its launch template (whatever became of their tags).

Pure. They are reported once the policy's grace period is over, and terminated if the policy says so, they carry the
ownership tag, and somebody had asked for them.
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
    """Since when it has its present status, if for longer than the grace period; None for whatever is in use, stopped
    or protected.
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
    ):  # a node that left and still runs was not, or could not be, ended
        return None
    ack = node.facts.acks.status
    if ack is None or ack.value != standing.line:
        return None
    return ack.at if now - ack.at >= rules.policy.orphan_grace_seconds else None
