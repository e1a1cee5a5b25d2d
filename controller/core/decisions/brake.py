"""A brake on endings of instances that never reported: when more than a handful come due within ten minutes, they stop
until people let them go on. Pure.

Who never reported cannot be told from a machine that serves something else, and many at once look like a mistake: a
policy that names a wrong group, tags that a script took away, a forged word. Endings of nodes that reported, or that
were in the job, are none of its business, and neither are those that a group or AWS decides upon.

What it has stopped it has told of, which each node remembers; for as long as one of those is still to be ended, no
other one that never reported is ended either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.core.decisions.actions import Action, Terminate, TerminateInGroup, instances
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.views.view import Rules, View

HANDFUL = 5
WITHIN_SECONDS = 600.0
ENDINGS_HELD = "EndingsHeld"
WHY = (
    f"its ending is held: it never reported, and more than {HANDFUL} like it were to be ended within ten minutes; look "
    f"what it is, then tag it {LEAVE_TAG}={LEAVE_NOW}"
)


def held(nodes: Sequence[NodeStatus], actions: Iterable[Action], rules: Rules, now: float) -> frozenset[str]:
    """The instances that `actions` are not to end."""
    if not rules.policy.hold_endings:
        return frozenset()
    due = {
        instance
        for action in actions
        if isinstance(action, Terminate | TerminateInGroup)
        for instance in instances(action)
    }
    silent = [node for node in nodes if _silent(node.view, rules)]
    doubtful = [node for node in silent if node.view.instance in due]
    lately = sum(_ended_lately(node.view, now) for node in silent)
    if len(doubtful) + lately <= HANDFUL and not any(map(_announced, doubtful)):
        return frozenset()
    return frozenset(node.view.instance for node in doubtful)


def without_endings(actions: Iterable[Action], others: AbstractSet[str]) -> Iterator[Action]:
    """The actions, but none that ends one of the `others`."""
    for action in actions:
        if isinstance(action, Terminate):
            left = tuple(instance for instance in action.instances if instance not in others)
            if left:
                yield replace(action, instances=left)
        elif not isinstance(action, TerminateInGroup) or action.instance not in others:
            yield action


def _silent(node: View, rules: Rules) -> bool:
    """Whether nothing was ever heard of it, and nobody has said that it may go."""
    heard = node.facts.preparation is not None or rules.policy.cluster in node.facts.acks.joined
    return not heard and (node.tags or {}).get(LEAVE_TAG, "").strip().lower() != LEAVE_NOW


def _ended_lately(node: View, now: float) -> bool:
    end = node.facts.acks.terminate
    return end is not None and now - end.at < WITHIN_SECONDS


def _announced(node: NodeStatus) -> bool:
    """Whether people were told that it is held, since it came to stand as it does."""
    alarm, status = node.view.facts.acks.alarms.get(ENDINGS_HELD), node.view.facts.acks.status
    since = status.at if status is not None else 0.0
    return alarm is not None and alarm.value == node.standing.line and alarm.at >= since
