"""Read facts about nodes again before a decision acts on the facts. The index of the DynamoDB table may lag, and a
reading of EC2 may be incomplete.
"""

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
    """The nodes whose facts must be current before the decision is applied. A node's facts must be current if the
    decision adds the node to the target, removes the node, changes its coordinator role, or ends its instance.
    """
    coordinator_ids = {old.coordinator, decision.membership.coordinator} if decision.nomination is not None else set()
    return (
        set(old.members) ^ set(decision.membership.members)
        | ended_instances(decision)
        | {instance_id for instance_id in coordinator_ids if instance_id is not None}
    )


def ended_instances(decision: Decision) -> set[str]:
    ending_actions = [action for action in decision.actions if isinstance(action, Ending)]
    return {instance_id for action in ending_actions for instance_id in instances(action)}


def reread_nodes(
    ports: Ports, rules: Rules, nodes: Mapping[str, StoredNode], ended_ids: Iterable[str]
) -> dict[str, StoredNode]:
    """Describe the instances to be ended in EC2 again, and return the nodes whose facts change. The second reading
    ensures that no instance is ended because of one incomplete reading of EC2.
    """
    read_started = ports.clock()
    changed_nodes = {}
    for seen_instance in ports.instances.by_id(sorted(ended_ids)):
        node = nodes[seen_instance.instance]
        new_facts = node.facts.join(facts_of_instance(seen_instance, read_started, rules.elastic))
        if new_facts != node.facts:
            changed_nodes[seen_instance.instance] = replace(node, facts=new_facts)
    return changed_nodes


def newer_versions(ports: Ports, nodes: Mapping[str, StoredNode], ids: Iterable[str]) -> dict[str, StoredNode]:
    latest_nodes = ports.nodes.get_many(sorted(ids))
    return {
        instance: replace(node, facts=node.facts.join(nodes[instance].facts) if instance in nodes else node.facts)
        for instance, node in latest_nodes.items()
        if instance not in nodes or node.version > nodes[instance].version
    }
