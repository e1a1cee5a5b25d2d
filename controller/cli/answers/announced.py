"""An instance's status as the controller last announced it in the instance's tag. Pure.

A status that a reader derives from the facts could differ from the tag, and change back at the next reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.status import NodeStatus, Standing
from dyntrain.controller.core.views.reasons import Reason


def announced_standing(node: NodeStatus) -> Standing:
    """The status and reason that the controller last announced for the node, or `WAITING` if it announced none. A
    terminated node, and a node whose derived status equals the announced status, get the derived status and reason.
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
    """The last announced status and reason, from the node's facts. If the facts are lost, the instance's tag gives the
    status without a reason.
    """
    announced_status = node.view.facts.acks.status
    status, _, reason = (
        announced_status.value.partition(" ") if announced_status is not None else (node.view.status_tag, "", "")
    )
    return Standing(
        status if status in get_args(Status) else "WAITING",  # type: ignore[arg-type]
        Reason(reason) if reason in set(Reason) else Reason.NOT_LOOKED_AT,
    )
