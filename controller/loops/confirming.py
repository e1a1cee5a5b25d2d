"""Read facts again before acting on them: the index may lag, and a reading of EC2 may be partial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dyntrain.controller.core.decisions.actions import Ending, instances
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.ports import Ports, StoredNode
from dyntrain.controller.loops.resync import facts_of_instance


def nodes_to_confirm(decision: Decision, old: Membership) -> set[str]:
    """Nodes whose facts must be current: they join or leave the target or coordinator's role, or are ended."""
    coordinators = {old.coordinator, decision.membership.coordinator} if decision.nomination is not None else set()
    return (
        set(old.members) ^ set(decision.membership.members)
        | ended_instances(decision)
        | {instance for instance in coordinators if instance is not None}
    )


def ended_instances(decision: Decision) -> set[str]:
    endings = [action for action in decision.actions if isinstance(action, Ending)]
    return {instance for action in endings for instance in instances(action)}


def read_again(
    ports: Ports, rules: Rules, nodes: Mapping[str, StoredNode], ended_ids: Iterable[str]
) -> dict[str, StoredNode]:
    """Nodes whose facts change when EC2 is read again: a partial reading must not end an instance."""
    started = ports.clock()
    changed = {}
    for instance in ports.instances.by_id(sorted(ended_ids)):
        node = nodes[instance.instance]
        facts = node.facts.join(facts_of_instance(instance, started, rules.elastic))
        if facts != node.facts:
            changed[instance.instance] = replace(node, facts=facts)
    return changed


def confirm(ports: Ports, nodes: Mapping[str, StoredNode], ids: Iterable[str]) -> dict[str, StoredNode]:
    latest = ports.nodes.get_many(sorted(ids))
    return {
        instance: replace(node, facts=node.facts.join(nodes[instance].facts) if instance in nodes else node.facts)
        for instance, node in latest.items()
        if instance not in nodes or node.version > nodes[instance].version
    }
