"""An instance's status as the controller last announced it in the instance's tag. Pure.

A status derived again from newer facts could run ahead of the tag, and jump back when a later reading is older.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.status import NodeStatus, Standing
from dyntrain.controller.core.views.reasons import Reason


def announced_standing(node: NodeStatus) -> Standing:
    """Return the announced standing, or the derived standing for an equal status or a terminated instance. Without an
    announced status, the status is `WAITING`.
    """
    derived, announced = node.standing, _stored_standing(node)
    if derived.status == "GONE" or announced.status == derived.status:
        return derived
    return replace(announced, next_change=derived.next_change, detail=f"not announced yet: {derived.reason.sentence}")


def _stored_standing(node: NodeStatus) -> Standing:
    """The announced standing in the node's facts. If the facts were lost, the tag gives the status without a reason."""
    announced = node.view.facts.acks.status
    status, _, reason = announced.value.partition(" ") if announced is not None else (node.view.status_tag, "", "")
    return Standing(
        status if status in get_args(Status) else "WAITING",  # type: ignore[arg-type]
        Reason(reason) if reason in set(Reason) else Reason.NOT_LOOKED_AT,
    )
