"""What a pass reads once more before it acts: the index that it began with may be a moment old, a reading partial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dyntrain.controller.core.decisions.actions import Ending, instances
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.ports import Ports, StoredNode
from dyntrain.controller.loops.resync import facts_of_instance


def critical(decision: Decision, old: Membership) -> set[str]:
    """Nodes whose facts must not be a moment old: those that join or leave the target, lose or take the coordinator,
    and those that are ended.
    """
    coordinators = {old.coordinator, decision.membership.coordinator} if decision.nomination is not None else set()
    return (
        set(old.members) ^ set(decision.membership.members)
        | ended(decision)
        | {instance for instance in coordinators if instance is not None}
    )


def ended(decision: Decision) -> set[str]:
    ends = [action for action in decision.actions if isinstance(action, Ending)]
    return {instance for action in ends for instance in instances(action)}


def read_again(
    ports: Ports, rules: Rules, nodes: Mapping[str, StoredNode], ends: Iterable[str]
) -> dict[str, StoredNode]:
    """Those whose facts a fresh look at EC2 changes: nothing is ended on a reading that may have been partial."""
    started = ports.clock()
    changed = {}
    for seen in ports.instances.by_id(sorted(ends)):
        node = nodes[seen.instance]
        facts = node.facts.join(facts_of_instance(seen, started, rules.elastic))
        if facts != node.facts:
            changed[seen.instance] = replace(node, facts=facts)
    return changed


def confirm(ports: Ports, nodes: Mapping[str, StoredNode], wanted: Iterable[str]) -> dict[str, StoredNode]:
    latest = ports.nodes.get_many(sorted(wanted))
    return {
        instance: replace(node, facts=node.facts.join(nodes[instance].facts) if instance in nodes else node.facts)
        for instance, node in latest.items()
        if instance not in nodes or node.version > nodes[instance].version
    }
