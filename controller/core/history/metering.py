"""The entries of the audit trail from which bills are made: when an instance runs for the cluster, and in which role.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.view import MAX_UNSEEN_CALLS, Rules, View

# AWS does not bill the state pending, which lasts seconds and is treated like running
_BILLED_STATES = RUNNING  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html


def new_entries(views: Iterable[View], rules: Rules, now: float) -> tuple[Metered, ...]:
    """The entries about costs that the controller now has to add to the audit trail. A machine gets no entry until its
    instance type has been read.
    """
    return tuple(entry for node in views if (entry := _new_entry(node, rules, now)) is not None)


def last_entry(node: View) -> Metered | None:
    """The last entry of the audit trail about the node's costs. Returns None if the audit trail has no entry about the
    node's costs. The field `since` of the result is the time when the entry was written.
    """
    bill_ack = node.facts.acks.billed
    if bill_ack is None:
        return None
    state, role, instance_type, market = bill_ack.value.split(" ")
    return Metered.model_validate(
        {
            "instance": node.instance,
            "state": state,
            "role": role,
            "type": instance_type,
            "market": market,
            "since": bill_ack.at,
        }
    )


def costs_cluster(node: View, rules: Rules) -> bool:
    """Whether the node runs now and the cluster's bill includes the node's costs. A machine that does not belong to the
    cluster costs the cluster only while the machine carries the elastic tag.
    """
    running = node.state in _BILLED_STATES and not node.terminated and node.unseen < MAX_UNSEEN_CALLS
    return running and (_belongs_to_cluster(node, rules) or (node.tags is not None and rules.elastic_tag in node.tags))


def _new_entry(node: View, rules: Rules, now: float) -> Metered | None:
    old_entry, machine = last_entry(node), node.facts.machine
    if not costs_cluster(node, rules):
        if old_entry is None or old_entry.state == "off":
            return None
        return old_entry.model_copy(update={"state": "off", "since": _end_time(node, now)})
    if machine is None:
        return None
    role = "master" if node.master else "base" if node.base else "elastic"
    costs_since = now
    if (old_entry is None or old_entry.state == "off") and _belongs_to_cluster(node, rules):
        started_at = min(node.started or now, now)
        costs_since = started_at if old_entry is None or started_at > old_entry.since else now
    new_entry = Metered(
        instance=node.instance, state="on", role=role, type=machine.type, market=machine.market, since=costs_since
    )
    return new_entry if old_entry is None or old_entry.line != new_entry.line else None


def _belongs_to_cluster(node: View, rules: Rules) -> bool:
    return node.base or node.owned or node.launched or node.group in rules.groups


def _end_time(node: View, now: float) -> float:
    state_event = node.facts.state_event
    ended_at = state_event.at if state_event is not None and state_event.state not in _BILLED_STATES else now
    return min(ended_at, now)
