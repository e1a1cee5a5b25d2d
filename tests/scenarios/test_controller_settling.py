"""What counts where an event and a read say different things: EC2's answers lag behind its events, so a read counts
once it began later than the settling margin after the event, and not at its end.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.records.facts import (
    GroupEvent,
    GroupRead,
    NodeFacts,
    StateEvent,
    StateRead,
    TagsEvent,
    TagsRead,
)
from dyntrain.controller.core.views.view import Rules, View, view
from fakes import START, instance_id

RULES = Rules(ClusterPolicy(cluster="demo"))
MARGIN = RULES.policy.settling_seconds
SAYS: dict[str, Any] = {
    "tags_event": TagsEvent(version=2, at=START, tags={"said": "event"}),
    "state_event": StateEvent(at=START, state="stopped"),
    "group_event": GroupEvent(at=START, group="g", phase="terminating"),
}


def reads(started: float) -> dict[str, Any]:
    return {
        "tags_read": TagsRead(started=started, tags={"said": "read"}),
        "state_read": StateRead(started=started, state="running"),
        "group_read": GroupRead(started=started, group="h", phase="in_service"),
    }


def seen(**registers: Any) -> tuple[Any, ...]:
    node: View = view(NodeFacts(instance=instance_id(1), **registers), RULES, START + 500)
    return (node.tags and node.tags["said"], node.state, node.group, node.phase)


EVENT, READ = ("event", "stopped", "g", "terminating"), ("read", "running", "h", "in_service")


@pytest.mark.parametrize(
    ("later", "counts"), [(-1.0, EVENT), (0.0, EVENT), (MARGIN - 0.001, EVENT), (MARGIN, EVENT), (MARGIN + 0.001, READ)]
)
def test_a_read_counts_from_the_margin_after_the_event_on(later: float, counts: tuple[str, ...]) -> None:
    assert seen(**SAYS, **reads(START + later)) == counts


def test_what_there_is_one_of_counts() -> None:
    assert seen(**SAYS) == EVENT
    assert seen(**reads(START)) == READ
    assert seen() == (None, None, None, None)
