"""Entries of the audit trail for the bill: when an instance runs for the cluster, and in which role. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.view import MAX_UNSEEN_CALLS, Rules, View

# AWS does not bill the state pending, which lasts seconds and is treated like running
_BILLED = RUNNING  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html


def new_entries(views: Iterable[View], rules: Rules, now: float) -> tuple[Metered, ...]:
    """New entries of the nodes. A machine whose instance type has not been read yet has no entry."""
    return tuple(entry for node in views if (entry := _new_entry(node, rules, now)) is not None)


def last_entry(node: View) -> Metered | None:
    """The node's last entry in the audit trail. The field `since` is the time when the entry was written."""
    billed = node.facts.acks.billed
    if billed is None:
        return None
    state, role, kind, market = billed.value.split(" ")
    return Metered.model_validate(
        {"instance": node.instance, "state": state, "role": role, "type": kind, "market": market, "since": billed.at}
    )


def costs_cluster(node: View, rules: Rules) -> bool:
    """Whether the cluster has to pay for the node. For a borrowed machine the cluster pays only while the machine
    carries the elastic tag.
    """
    running = node.state in _BILLED and not node.terminated and node.unseen < MAX_UNSEEN_CALLS
    return running and (_belongs_to_cluster(node, rules) or (node.tags is not None and rules.elastic_tag in node.tags))


def _new_entry(node: View, rules: Rules, now: float) -> Metered | None:
    last, machine = last_entry(node), node.facts.machine
    if not costs_cluster(node, rules):
        if last is None or last.state == "off":
            return None
        return last.model_copy(update={"state": "off", "since": _end_time(node, now)})
    if machine is None:
        return None
    role = "master" if node.master else "base" if node.base else "elastic"
    since = now
    if (last is None or last.state == "off") and _belongs_to_cluster(node, rules):
        began = min(node.started or now, now)
        since = began if last is None or began > last.since else now
    entry = Metered(
        instance=node.instance, state="on", role=role, type=machine.type, market=machine.market, since=since
    )
    return entry if last is None or last.line != entry.line else None


def _belongs_to_cluster(node: View, rules: Rules) -> bool:
    return node.base or node.owned or node.launched or node.group in rules.groups


def _end_time(node: View, now: float) -> float:
    event = node.facts.state_event
    at = event.at if event is not None and event.state not in _BILLED else now
    return min(at, now)
