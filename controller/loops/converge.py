"""Makes AWS and the job agree with the facts of a cluster. A run starts with records of the DynamoDB table's stream.
Runs may overlap.

The steps of a run:
1. gather: the cluster's nodes (from the index and from the stream's records), the job, the membership
2. decide (pure): consistent reads first confirm facts that change the membership or end an instance
3. apply: write the membership by compare-and-set, publish it, carry out actions, acknowledge effects.

Only one run at a time (see `turns`) writes a node's status for people into its tag, the log and the audit trail.
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
from dyntrain.controller.core.views.view import Rules, next_describe_at
from dyntrain.controller.loops.confirming import ended_instances, newer_versions, nodes_to_confirm, reread_nodes
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
from dyntrain.controller.loops.turns import StatusLock

log = logging.getLogger("dyntrain.converge")

ATTEMPTS = 10  # passes before a run gives up


def converge(ports: Ports, registry: Registry, wake: Wake, elastic: ElasticTag) -> list[Decision]:
    """Handle all clusters that `wake` concerns, and return the decisions. If handling a cluster raises RetryLater, the
    remaining clusters are still handled, and RetryLater is raised at the end.
    """
    decisions, failure_texts = [], []
    for cluster, nodes in _nodes_by_cluster(ports, registry, wake).items():
        policy = registry.policy(cluster)
        if policy is None:
            log.warning("no valid policy: nothing done", extra={"cluster": cluster})
            continue
        try:
            rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
            all_nodes = cluster in wake.clusters | wake.ticked or not nodes
            decision = _converge_cluster(
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
            failure_texts.append(f"{cluster}: {error}")
            log.warning("to be retried", extra={"cluster": cluster, "problem": str(error)})
        except ControllerError as error:
            log.error("given up until the next tick", extra={"cluster": cluster, "problem": str(error)})
            ports.metrics.count(GIVEN_UP, cluster)
    if failure_texts:
        raise RetryLater("; ".join(failure_texts))
    return decisions


def found_groups(ports: Ports, registry: Registry, cluster: str) -> tuple[str, ...]:
    """The Auto Scaling groups that the cluster's own CloudFormation stack created, except groups that another cluster
    has registered.
    """
    groups = sorted(ports.group_records.of_cluster(cluster))
    return tuple(group for group in groups if registry.of_group(group) in (None, cluster))


def _nodes_by_cluster(ports: Ports, registry: Registry, wake: Wake) -> dict[str, dict[str, StoredNode]]:
    nodes_by_cluster: dict[str, dict[str, StoredNode]] = {
        cluster: {} for cluster in sorted(wake.clusters | wake.ticked)
    }
    for group in sorted(wake.groups):
        owner_cluster = _owner_of(ports, registry, group)
        if owner_cluster is not None:
            nodes_by_cluster.setdefault(owner_cluster, {})
    for node in wake.nodes.values():
        cluster = cluster_of(ports, node.facts, registry)
        if cluster is not None:
            nodes_by_cluster.setdefault(cluster, {})[node.facts.instance] = node
    return nodes_by_cluster


def cluster_of(ports: Ports, facts: NodeFacts, registry: Registry) -> str | None:
    """The cluster that the node's tags or reports name, or else the cluster that owns the node's Auto Scaling group."""
    if facts.named is not None:
        return facts.named.cluster
    return _owner_of(ports, registry, facts.group_event.group) if facts.group_event is not None else None


def _owner_of(ports: Ports, registry: Registry, group: str) -> str | None:
    """The cluster that registered the Auto Scaling group, or else the cluster whose stack created the group according
    to the records of the resync.
    """
    registering_cluster = registry.of_group(group)
    if registering_cluster is not None:
        return registering_cluster
    stored_group = ports.group_records.get(group)
    cluster_statement = stored_group.facts.named if stored_group is not None else None
    return cluster_statement.cluster or None if cluster_statement is not None else None


def _converge_cluster(
    ports: Ports, rules: Rules, node_images: Mapping[str, StoredNode], repair: bool, all_nodes: bool, surveyed: bool
) -> Decision | None:
    """Repeat passes over the cluster as long as other runs leave instances to this run. Returns None while the
    cluster's membership is lost, or is rebuilt but still waits for the job's report.
    """
    cluster = rules.policy.cluster
    done_actions: tuple[Action, ...] = ()
    for _ in range(ATTEMPTS):
        status_lock = StatusLock(ports, cluster)
        try:
            decision = _make_pass(
                ports, rules, node_images, status_lock, repair=repair, all_nodes=all_nodes, surveyed=surveyed
            )
        except Exception:
            with suppress(ControllerError):
                status_lock.release_lock(done=False)
            raise
        deferred_instances = status_lock.release_lock(done=decision is not None)
        if decision is None:
            return None
        done_actions += decision.actions
        if not deferred_instances:
            return replace(decision, actions=done_actions)
        node_images, all_nodes, repair = ports.nodes.get_many(sorted(deferred_instances)), False, False
    raise RetryLater(f"the run of {cluster} gave up: other runs left instances to this run {ATTEMPTS} times in a row")


def _make_pass(
    ports: Ports,
    rules: Rules,
    node_images: Mapping[str, StoredNode],
    status_lock: StatusLock,
    *,
    repair: bool,
    all_nodes: bool,
    surveyed: bool,
) -> Decision | None:
    """Make one pass over a cluster: gather facts, decide, and apply the decision.

    If `all_nodes` is False, this pass does not act on nodes whose own stream records will start another pass. Leaving
    nodes to their own passes ensures that a thousand events cause only one acknowledgement for each node. The pass of
    the next tick (periodic check) acts on all nodes, even on a node whose stream record was lost.

    When a run gets the lock for announcing statuses, the run reads the facts again and decides again. Before a run
    holds the lock for announcing statuses, the run writes no status.
    """
    cluster = rules.policy.cluster
    nodes: dict[str, StoredNode] = {}
    reread_ids: set[str] = set()
    for _ in range(ATTEMPTS):
        nodes = nodes or _gather_nodes(ports, rules, node_images, all_nodes)
        now = ports.clock()  # before the reads: a node that reports during a slow run was not silent
        job_facts, _version = ports.jobs.get(cluster)
        stored_membership = membership_of(ports, cluster, surveyed=surveyed)
        if stored_membership is None or awaits_job(stored_membership.membership, job_facts, rules.policy, now):
            return None
        published_revision, conflict_text, old_membership = (
            stored_membership.published,
            "",
            stored_membership.membership,
        )
        if repair and stored_membership.membership.revision > 0:
            published_revision, conflict_text, old_membership = _check_parameter(
                ports, cluster, stored_membership.membership
            )
        if not stored_membership.membership.listed:
            take_members(ports, rules, stored_membership, job_facts, (node.facts for node in nodes.values()))
            continue
        decision = decide(
            (node.facts for node in nodes.values()), old_membership, job_facts, rules, now, published_revision
        )
        limited_decision = (
            decision if all_nodes else without_instances(decision, _nodes_with_own_pass(nodes, node_images))
        )
        newer_nodes = newer_versions(
            ports,
            nodes,
            nodes_to_confirm(decision, old_membership)
            | (announced_instances(limited_decision) if status_lock.held_by_this_run else set()),
        )
        ids_to_reread = ended_instances(decision) - reread_ids
        if ids_to_reread:
            newer_nodes = {**newer_nodes, **reread_nodes(ports, rules, {**nodes, **newer_nodes}, ids_to_reread)}
            reread_ids |= ids_to_reread
        if newer_nodes:  # decide again, since the job and the membership may have changed as well
            nodes.update(newer_nodes)
            continue
        announced_ids = announced_instances(limited_decision)
        if not status_lock.held_by_this_run:
            if status_lock.take_lock(nodes if all_nodes else node_images, wanted=bool(announced_ids)):
                if status_lock.left:
                    node_images = {**node_images, **ports.nodes.get_many(sorted(status_lock.left))}
                    nodes, reread_ids = {}, set()
                continue
            limited_decision = without_instances(limited_decision, announced_ids)
        if decision.membership is not stored_membership.membership:
            try:
                ports.clusters.put(cluster, replace(stored_membership, membership=decision.membership))
            except Conflict:
                nodes, reread_ids = {}, set()
                continue
        if conflict_text:  # certain only now, since no other run has changed the membership meanwhile
            _report_foreign_target(ports, cluster, conflict_text)
        settle_holds(ports, rules, decision, all_groups=repair)
        _apply(ports, rules, limited_decision, nodes, status_lock)
        return limited_decision
    raise RetryLater(f"the run of {cluster} gave up: other runs changed the facts {ATTEMPTS} times in a row")


def _check_parameter(ports: Ports, cluster: str, membership: Membership) -> tuple[int, str, Membership]:
    """Compare the published target in the cluster's parameter with the membership. Returns the revision in the
    parameter, the reason to believe that another controller wrote the parameter (or ""), and the membership.

    If another controller wrote the parameter, the returned membership has a revision above the parameter's revision,
    because coordinators refuse a lower revision.
    """
    published_target = parameter_target(ports, cluster)
    if published_target is None:
        return -1, "", membership
    conflict_text = dispute_message(cluster, published_target, membership)
    if not conflict_text and published_target.revision > membership.revision:
        conflict_text = (
            f"the parameter target of {cluster} has revision {published_target.revision}, and the table has "
            f"{membership.revision}: the table is from a backup, or another controller serves this cluster"
        )
    return (
        published_target.revision,
        conflict_text,
        membership_above(membership, published_target) if conflict_text else membership,
    )


def _report_foreign_target(ports: Ports, cluster: str, problem: str) -> None:
    ports.metrics.count(TARGET_DISPUTED, cluster)
    log.error(TARGET_DISPUTED, extra={"cluster": cluster, "problem": problem})
    ports.clusters.record(cluster, ports.clock(), [AlarmRaised(kind=TARGET_DISPUTED, detail=problem)])


def _gather_nodes(
    ports: Ports, rules: Rules, node_images: Mapping[str, StoredNode], all_nodes: bool
) -> dict[str, StoredNode]:
    nodes = dict(ports.nodes.of_cluster(rules.policy.cluster))
    nodes.update(
        {
            instance_id: node_image
            for instance_id, node_image in node_images.items()
            if instance_id not in nodes or nodes[instance_id].version < node_image.version
        }
    )
    nodes = {instance_id: _with_cluster_name(node, rules.policy.cluster) for instance_id, node in nodes.items()}
    read_started = ports.clock()
    untagged_nodes = {
        instance_id: node
        for instance_id, node in nodes.items()
        if (all_nodes or instance_id in node_images) and _lacks_tags(node.facts)
    }
    instances_to_query = [
        instance_id
        for instance_id, node in untagged_nodes.items()
        if next_describe_at(node.facts, rules.policy.resync_seconds) <= read_started
    ]
    if instances_to_query:
        for seen_instance in ports.instances.by_id(instances_to_query):
            node = nodes[seen_instance.instance]
            nodes[seen_instance.instance] = replace(
                node, facts=node.facts.join(facts_of_instance(seen_instance, read_started, rules.elastic))
            )
    return {
        instance_id: node
        for instance_id, node in nodes.items()
        if node.facts.named is None or node.facts.named.cluster == rules.policy.cluster
    }


def _nodes_with_own_pass(nodes: Mapping[str, StoredNode], node_images: Mapping[str, StoredNode]) -> set[str]:
    return {instance for instance, node in nodes.items() if instance not in node_images and _awaits_own_pass(node)}


def _awaits_own_pass(node: StoredNode) -> bool:
    return node.pending or node.facts.acks.status is None


def _lacks_tags(facts: NodeFacts) -> bool:
    return not (facts.tags_event or facts.tags_read or facts.terminated)


def _with_cluster_name(node: StoredNode, cluster: str) -> StoredNode:
    """Add the cluster's name to the facts about an Auto Scaling group's member if the facts lack the name. The table's
    index finds only nodes whose facts contain the cluster's name.
    """
    if node.facts.named is not None or node.facts.group_event is None:
        return node
    facts_with_name = NodeFacts(
        instance=node.facts.instance, named=ClusterStatement(at=node.facts.group_event.at, cluster=cluster)
    )
    return replace(node, facts=node.facts.join(facts_with_name))


def _apply(ports: Ports, rules: Rules, decision: Decision, nodes: Mapping[str, StoredNode], lock: StatusLock) -> None:
    cluster, now = rules.policy.cluster, ports.clock()
    if lock.held_by_this_run and now > lock.until:
        raise RetryLater(f"this run's turn to announce statuses of {cluster} is over: the next run announces them")
    trail_entries, acks_by_instance = announce_changes(ports, rules, decision)
    results = perform(ports, cluster, decision.actions, until=lock.until if lock.held_by_this_run else None)
    for instance_id, effect_acks in results.acks.items():
        acks_by_instance[instance_id] = acks_by_instance.get(instance_id, NO_ACKS).join(effect_acks)
    for instance_id, node_acks in acks_by_instance.items():
        # one write for each node, without waking the stream: names, first reads, acknowledgements
        facts = nodes[instance_id].facts.join(NodeFacts(instance=instance_id, acks=node_acks))
        merge(ports, facts, wake=False, known_node=nodes[instance_id])
    if trail_entries or results.trail:
        ports.clusters.record(cluster, now, [*trail_entries, *results.trail])
    if results.failures:
        raise RetryLater("; ".join(results.failures))
