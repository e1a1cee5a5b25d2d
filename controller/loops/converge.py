"""Makes AWS and the job agree with the facts of a cluster. Records of the table's stream start a run; runs may overlap.

1. gather: the cluster's nodes (from the index and from the stream's records), the job, the membership
2. decide (pure): consistent reads first confirm facts that change the membership or end an instance
3. apply: write the membership by compare-and-set, publish it, carry out actions, acknowledge effects

One run at a time writes a node's status for people, into its tag, the log and the audit trail (`turns`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Conflict, ControllerError, RetryLater
from dyntrain.controller.core.decisions.actions import Action
from dyntrain.controller.core.decisions.alarms import GIVEN_UP, TARGET_DISPUTED
from dyntrain.controller.core.history.trail import AlarmRaised
from dyntrain.controller.core.planning import Decision, announced_instances, decide, without_instances
from dyntrain.controller.core.records.acks import NO_ACKS
from dyntrain.controller.core.records.facts import ClusterStatement, NodeFacts
from dyntrain.controller.core.views.target import Membership, membership_above
from dyntrain.controller.core.views.view import Rules, ask_again_at
from dyntrain.controller.loops.confirming import confirm, ended_instances, nodes_to_confirm, read_again
from dyntrain.controller.loops.execute import perform
from dyntrain.controller.loops.holding import settle_holds
from dyntrain.controller.loops.intake import merge
from dyntrain.controller.loops.ports import Ports, StoredNode, Wake
from dyntrain.controller.loops.publish import dispute_message, parameter_target
from dyntrain.controller.loops.rebuild import awaits_job, membership_of, take_members
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.loops.resync import facts_of_instance
from dyntrain.controller.loops.scaling import settle_capacity
from dyntrain.controller.loops.telling import announce_changes
from dyntrain.controller.loops.turns import Turn

log = logging.getLogger("dyntrain.converge")

ATTEMPTS = 10


def converge(ports: Ports, registry: Registry, wake: Wake, elastic: ElasticTag) -> list[Decision]:
    """Handle all clusters of `wake`. The RetryLater of a cluster is raised after the other clusters were handled."""
    decisions, failures = [], []
    for cluster, nodes in _nodes_by_cluster(ports, registry, wake).items():
        policy = registry.policy(cluster)
        if policy is None:
            log.warning("no valid policy: nothing done", extra={"cluster": cluster})
            continue
        try:
            rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
            all_nodes = cluster in wake.clusters | wake.ticked or not nodes
            decision = _converge(
                ports,
                rules,
                nodes,
                repair=cluster in wake.ticked,
                all_nodes=all_nodes,
                surveyed=cluster in wake.surveyed,
            )
            if decision is None:
                continue
            decisions.append(decision)
            # last, since nodes do not wait for group sizes
            capacity_actions = settle_capacity(ports, rules, decision, wake.groups, all_groups=cluster in wake.ticked)
            decisions[-1] = replace(decision, actions=(*decision.actions, *capacity_actions))
        except RetryLater as error:
            failures.append(f"{cluster}: {error}")
            log.warning("to be retried", extra={"cluster": cluster, "problem": str(error)})
        except ControllerError as error:
            log.error("given up until the next tick", extra={"cluster": cluster, "problem": str(error)})
            ports.metrics.count(GIVEN_UP, cluster)
    if failures:
        raise RetryLater("; ".join(failures))
    return decisions


def found_groups(ports: Ports, registry: Registry, cluster: str) -> tuple[str, ...]:
    """Groups of the cluster's own stack, except groups that another cluster has registered."""
    groups = sorted(ports.group_records.of_cluster(cluster))
    return tuple(group for group in groups if registry.of_group(group) in (None, cluster))


def _nodes_by_cluster(ports: Ports, registry: Registry, wake: Wake) -> dict[str, dict[str, StoredNode]]:
    clusters: dict[str, dict[str, StoredNode]] = {cluster: {} for cluster in sorted(wake.clusters | wake.ticked)}
    for group in sorted(wake.groups):
        owner = _owner_of(ports, registry, group)
        if owner is not None:
            clusters.setdefault(owner, {})
    for node in wake.nodes.values():
        cluster = cluster_of(ports, node.facts, registry)
        if cluster is not None:
            clusters.setdefault(cluster, {})[node.facts.instance] = node
    return clusters


def cluster_of(ports: Ports, facts: NodeFacts, registry: Registry) -> str | None:
    """The node's cluster: by the name in its tags or reports, else by its group."""
    if facts.named is not None:
        return facts.named.cluster
    return _owner_of(ports, registry, facts.group_event.group) if facts.group_event is not None else None


def _owner_of(ports: Ports, registry: Registry, group: str) -> str | None:
    """The group's cluster: by registration, else by the stack that created the group, as the resync recorded it."""
    registered = registry.of_group(group)
    if registered is not None:
        return registered
    stored = ports.group_records.get(group)
    named = stored.facts.named if stored is not None else None
    return named.cluster or None if named is not None else None


def _converge(
    ports: Ports, rules: Rules, images: Mapping[str, StoredNode], repair: bool, all_nodes: bool, surveyed: bool
) -> Decision | None:
    """Make passes while other runs leave instances to this run. None: the cluster's state is lost, not yet restored."""
    cluster = rules.policy.cluster
    done: tuple[Action, ...] = ()
    for _ in range(ATTEMPTS):
        turn = Turn(ports, cluster)
        try:
            decision = _pass(ports, rules, images, turn, repair=repair, all_nodes=all_nodes, surveyed=surveyed)
        except Exception:
            with suppress(ControllerError):
                turn.end(done=False)
            raise
        left_instances = turn.end(done=decision is not None)
        if decision is None:
            return None
        done += decision.actions
        if not left_instances:
            return replace(decision, actions=done)
        images, all_nodes, repair = ports.nodes.get_many(sorted(left_instances)), False, False
    raise RetryLater(f"other runs left instances of {cluster} to this run {ATTEMPTS} times in a row")


def _pass(
    ports: Ports,
    rules: Rules,
    images: Mapping[str, StoredNode],
    turn: Turn,
    *,
    repair: bool,
    all_nodes: bool,
    surveyed: bool,
) -> Decision | None:
    """Make one pass: gather, decide, apply.

    `all_nodes` False: this pass does not act on nodes whose own stream records will start another pass. So a thousand
    events cost one acknowledgement per node, though several passes see most of the nodes. The next tick acts on all
    nodes, also on a node whose record was lost.

    A run that gets its turn to announce statuses reads the facts and decides again. Before its turn, it writes no
    status.
    """
    cluster = rules.policy.cluster
    nodes: dict[str, StoredNode] = {}
    reread_ids: set[str] = set()
    for _ in range(ATTEMPTS):
        nodes = nodes or _gather(ports, rules, images, all_nodes)
        now = ports.clock()  # before the reads: a node that reports during a slow run was not silent
        job, _version = ports.jobs.get(cluster)
        stored = membership_of(ports, cluster, surveyed=surveyed)
        if stored is None or awaits_job(stored.membership, job, rules.policy, now):
            return None
        published, foreign_reason, old = stored.published, "", stored.membership
        if repair and stored.membership.revision > 0:
            published, foreign_reason, old = _parameter(ports, cluster, stored.membership)
        if not stored.membership.listed:
            take_members(ports, rules, stored, job, (node.facts for node in nodes.values()))
            continue
        decision = decide((node.facts for node in nodes.values()), old, job, rules, now, published)
        own_decision = decision if all_nodes else without_instances(decision, _left_to_own_passes(nodes, images))
        newer_nodes = confirm(
            ports,
            nodes,
            nodes_to_confirm(decision, old) | (announced_instances(own_decision) if turn.is_taken else set()),
        )
        ended_ids = ended_instances(decision) - reread_ids
        if ended_ids:
            newer_nodes = {**newer_nodes, **read_again(ports, rules, {**nodes, **newer_nodes}, ended_ids)}
            reread_ids |= ended_ids
        if newer_nodes:  # decide again, since the job and the membership may have changed as well
            nodes.update(newer_nodes)
            continue
        news = announced_instances(own_decision)
        if not turn.is_taken:
            if turn.take(nodes if all_nodes else images, wanted=bool(news)):
                if turn.left:
                    images = {**images, **ports.nodes.get_many(sorted(turn.left))}
                    nodes, reread_ids = {}, set()
                continue
            own_decision = without_instances(own_decision, news)
        if decision.membership is not stored.membership:
            try:
                ports.clusters.put(cluster, replace(stored, membership=decision.membership))
            except Conflict:
                nodes, reread_ids = {}, set()
                continue
        if foreign_reason:  # certain only now, since no other run has changed the membership meanwhile
            _report_foreign_target(ports, cluster, foreign_reason)
        settle_holds(ports, rules, decision, all_groups=repair)
        _apply(ports, rules, own_decision, nodes, turn)
        return own_decision
    raise RetryLater(f"the facts of {cluster} were changed by other runs {ATTEMPTS} times in a row")


def _parameter(ports: Ports, cluster: str, membership: Membership) -> tuple[int, str, Membership]:
    """Return the target parameter's revision, why another controller must have written it (or ""), and the membership.

    If another controller wrote it, the membership gets a higher revision: coordinators refuse a lower one.
    """
    published = parameter_target(ports, cluster)
    if published is None:
        return -1, "", membership
    foreign_reason = dispute_message(cluster, published, membership)
    if not foreign_reason and published.revision > membership.revision:
        foreign_reason = (
            f"the parameter target of {cluster} has revision {published.revision}, and the table has "
            f"{membership.revision}: the table is from a backup, or another controller serves this cluster"
        )
    return published.revision, foreign_reason, membership_above(membership, published) if foreign_reason else membership


def _report_foreign_target(ports: Ports, cluster: str, problem: str) -> None:
    ports.metrics.count(TARGET_DISPUTED, cluster)
    log.error(TARGET_DISPUTED, extra={"cluster": cluster, "problem": problem})
    ports.clusters.record(cluster, ports.clock(), [AlarmRaised(kind=TARGET_DISPUTED, detail=problem)])


def _gather(ports: Ports, rules: Rules, images: Mapping[str, StoredNode], all_nodes: bool) -> dict[str, StoredNode]:
    nodes = dict(ports.nodes.of_cluster(rules.policy.cluster))
    nodes.update(
        {
            instance: image
            for instance, image in images.items()
            if instance not in nodes or nodes[instance].version < image.version
        }
    )
    nodes = {instance: _with_cluster_name(node, rules.policy.cluster) for instance, node in nodes.items()}
    started = ports.clock()
    untagged_nodes = {
        instance: node
        for instance, node in nodes.items()
        if (all_nodes or instance in images) and _lacks_tags(node.facts)
    }
    due_instances = [
        instance
        for instance, node in untagged_nodes.items()
        if ask_again_at(node.facts, rules.policy.resync_seconds) <= started
    ]
    if due_instances:
        for described in ports.instances.by_id(due_instances):
            node = nodes[described.instance]
            nodes[described.instance] = replace(
                node, facts=node.facts.join(facts_of_instance(described, started, rules.elastic))
            )
    return {
        instance: node
        for instance, node in nodes.items()
        if node.facts.named is None or node.facts.named.cluster == rules.policy.cluster
    }


def _left_to_own_passes(nodes: Mapping[str, StoredNode], images: Mapping[str, StoredNode]) -> set[str]:
    return {instance for instance, node in nodes.items() if instance not in images and _awaits_its_own_pass(node)}


def _awaits_its_own_pass(node: StoredNode) -> bool:
    return node.pending or node.facts.acks.status is None


def _lacks_tags(facts: NodeFacts) -> bool:
    return not (facts.tags_event or facts.tags_read or facts.terminated)


def _with_cluster_name(node: StoredNode, cluster: str) -> StoredNode:
    """Add the cluster's name, which the index needs, to a group member's facts that have none."""
    if node.facts.named is not None or node.facts.group_event is None:
        return node
    name_facts = NodeFacts(
        instance=node.facts.instance, named=ClusterStatement(at=node.facts.group_event.at, cluster=cluster)
    )
    return replace(node, facts=node.facts.join(name_facts))


def _apply(ports: Ports, rules: Rules, decision: Decision, nodes: Mapping[str, StoredNode], turn: Turn) -> None:
    cluster, at = rules.policy.cluster, ports.clock()
    if turn.is_taken and at > turn.until:
        raise RetryLater(f"the turn of this run to announce statuses of {cluster} is over; the next run announces them")
    trail, acks = announce_changes(ports, rules, decision)
    performed = perform(ports, cluster, decision.actions, until=turn.until if turn.is_taken else None)
    for instance, effects in performed.acks.items():
        acks[instance] = acks.get(instance, NO_ACKS).join(effects)
    for instance, node_acks in acks.items():
        # one write for each node, without waking the stream: names, first reads, acknowledgements
        facts = nodes[instance].facts.join(NodeFacts(instance=instance, acks=node_acks))
        merge(ports, facts, wake=False, known=nodes[instance])
    if trail or performed.trail:
        ports.clusters.record(cluster, at, [*trail, *performed.trail])
    if performed.failures:
        raise RetryLater("; ".join(performed.failures))
