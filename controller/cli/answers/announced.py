"""Find the status that the controller last announced in an instance's tag. Pure.

Commands show the announced status, because a status that a command derives from the facts could differ from the tag and
change back at the next reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.status import NodeStatus, Standing
from dyntrain.controller.core.views.reasons import Reason


def announced_standing(node: NodeStatus) -> Standing:
    """The status and reason that the controller last announced for the node, or `WAITING` without an announcement. For
    a terminated node, and for a node whose derived status equals the announced status, the result is the derived status
    and reason.
    """
    derived_standing, stored_standing = node.standing, _stored_standing(node)
    if derived_standing.status == "GONE" or stored_standing.status == derived_standing.status:
        return derived_standing
    return replace(
        stored_standing,
        next_change=derived_standing.next_change,
        detail=f"not announced yet: {derived_standing.reason.sentence}",
    )


def _stored_standing(node: NodeStatus) -> Standing:
    """The node's last announced status and reason, according to the node's facts. If the facts are lost, the status is
    read from the instance's tag, and the reason is NOT_LOOKED_AT.
    """
    announced_status = node.view.facts.acks.status
    status, _, reason = (
        announced_status.value.partition(" ") if announced_status is not None else (node.view.status_tag, "", "")
    )
    return Standing(
        status if status in get_args(Status) else "WAITING",  # type: ignore[arg-type]
        Reason(reason) if reason in set(Reason) else Reason.NOT_LOOKED_AT,
    )
