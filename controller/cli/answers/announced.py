"""How people are told that an instance stands: as its tag says, however often and from wherever they ask. Pure.

What is known since then is the controller's to tell, with its next pass: derived here as well, a status would stand in
one place before the other, and go back where one of the readings is older.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.status import NodeStatus, Standing
from dyntrain.controller.core.views.reasons import Reason


def announced_standing(node: NodeStatus) -> Standing:
    """With the reason as it is now, where that is one for the same status. Of an instance that is gone nothing else is
    told any more; one of which nothing was told yet is `WAITING` for that.
    """
    now, known = node.standing, _known(node)
    if now.status == "GONE" or known.status == now.status:
        return now
    return replace(known, next_change=now.next_change, detail=f"not told yet: {now.reason.sentence}")


def _known(node: NodeStatus) -> Standing:
    """By what the node remembers; a table that was lost knows the tag again, and not the reason."""
    last = node.view.facts.acks.status
    status, _, reason = last.value.partition(" ") if last is not None else (node.view.mirror, "", "")
    return Standing(
        status if status in get_args(Status) else "WAITING",  # type: ignore[arg-type]
        Reason(reason) if reason in set(Reason) else Reason.NOT_LOOKED_AT,
    )
