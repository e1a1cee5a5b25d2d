"""An instance's status as its tag shows it, the same wherever people look. Pure.

A status changes here only after a pass of the controller has announced it. If it were also derived here from newer
facts, this view could run ahead of the tag, and jump back when a later reading is older.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.status import NodeStatus, Standing
from dyntrain.controller.core.views.reasons import Reason


def announced_standing(node: NodeStatus) -> Standing:
    """The announced status, with the current reason where that belongs to the same status. A terminated instance has
    only its last status; one without an announced status is `WAITING` for it.
    """
    now, known = node.standing, _known(node)
    if now.status == "GONE" or known.status == now.status:
        return now
    return replace(known, next_change=now.next_change, detail=f"not told yet: {now.reason.sentence}")


def _known(node: NodeStatus) -> Standing:
    """The standing that the node remembers. After a lost table the tag still gives the status, but no reason."""
    last = node.view.facts.acks.status
    status, _, reason = last.value.partition(" ") if last is not None else (node.view.status_tag, "", "")
    return Standing(
        status if status in get_args(Status) else "WAITING",  # type: ignore[arg-type]
        Reason(reason) if reason in set(Reason) else Reason.NOT_LOOKED_AT,
    )
