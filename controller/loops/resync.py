"""Reads EC2 and Auto Scaling in each period, stores differences as facts, and has every cluster checked.

The steps of a resync:
1. gather: all instances and group members of all clusters; a failed read changes no facts
2. decide: which nodes differ from their stored facts
3. apply: write the facts of these nodes
4. tick: have each cluster checked, also after a failed read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import OWNER_TAG, STATUS_TAG, ClusterPolicy, launch_template_name
from dyntrain.controller.core.decisions.alarms import POLICY_INVALID, READ_FAILED
from dyntrain.controller.core.incoming.events import elastic_tag_cluster, kept_read_tags, tagged_cluster
from dyntrain.controller.core.records.acks import NO_ACKS, NO_HEARTBEAT, Acks, Doubt, MissedReads
from dyntrain.controller.core.records.facts import (
    ClusterStatement,
    GroupRead,
    Hook,
    InstanceState,
    Machine,
    NodeFacts,
    Phase,
    Preparation,
    StateRead,
    TagsRead,
    base_tag,
    join_all,
)
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.views.view import Rules, missed_read_count, next_describe_at, view
from dyntrain.controller.loops.doubts import Doubts, doubtful_losses
from dyntrain.controller.loops.intake import merge, merge_group
from dyntrain.controller.loops.ports import Ports, SeenInstance, SeenMember, StoredNode
from dyntrain.controller.loops.registry import Registry

log = logging.getLogger("dyntrain.resync")


@dataclass(frozen=True)
class ResyncResult:
    """The result of a resync. If a read of AWS failed, `complete` is False, and only the ticks (requests to check a
    cluster) were written.
    """

    clusters: int  # number of clusters
    seen: int  # number of instances that were read
    written: int  # number of nodes whose facts were written
    complete: bool  # whether all reads succeeded
    held: tuple[str, ...] = ()  # clusters whose lost members wait for a second reading


@dataclass(frozen=True)
class ResyncReading:
    """Everything that one resync read from EC2 and Auto Scaling."""

    started: float  # the time before the first read
    instances: Sequence[SeenInstance]  # the instances that EC2 showed
    members: Sequence[SeenMember]  # the members of the Auto Scaling groups
    hooks: Mapping[str, Mapping[str, str]]  # lifecycle hooks by group and by name
    owners: Mapping[str, str]  # by group: the cluster that registered it or whose stack created it
    queried: frozenset[str]  # instances that were described by id, whether EC2 showed them or not
    templates: Mapping[str, str]  # by instance: the cluster whose launch template launched it


def resync(ports: Ports, registry: Registry, elastic: ElasticTag) -> ResyncResult:
    policies = registry.all()
    for cluster in registry.problems():  # each time, so that the alarm stays until the policy is correct
        ports.metrics.count(POLICY_INVALID, cluster)
    read_started = ports.clock()
    try:
        stored_nodes = {
            instance_id: node for cluster in policies for instance_id, node in ports.nodes.of_cluster(cluster).items()
        }
        reading = _read_aws(ports, policies, stored_nodes, read_started, elastic)
        _record_groups(ports, policies, reading)
    except ControllerError as error:
        _tick_clusters(ports, policies, surveyed=False)
        log.error("a read failed: the facts of earlier reads stay", extra={"problem": str(error)})
        for cluster in policies:
            ports.metrics.count(READ_FAILED, cluster)
        return ResyncResult(len(policies), 0, 0, complete=False)
    changed_facts: list[tuple[NodeFacts, StoredNode | None]] = []
    for new_facts in _read_facts(policies, stored_nodes, reading, elastic):
        stored_node = stored_nodes.get(new_facts.instance) or ports.nodes.get(new_facts.instance)
        if _has_decisive_change(stored_node, new_facts, policies, elastic, read_started):
            changed_facts.append((new_facts, stored_node))
    doubts = doubtful_losses(ports, policies, stored_nodes, changed_facts, elastic, read_started)
    written_count = sum(
        merge(ports, new_facts, wake=True, known_node=stored_node) is None
        for new_facts, stored_node in changed_facts
        if new_facts.instance not in doubts.instances
    )
    _store_doubts(ports, stored_nodes, reading, doubts)
    _tick_clusters(ports, policies, surveyed=not doubts.clusters)
    log.info("resync", extra={"clusters": len(policies), "seen": len(reading.instances), "written": written_count})
    return ResyncResult(len(policies), len(reading.instances), written_count, complete=True, held=doubts.clusters)


def facts_of_instance(
    instance: SeenInstance, started: float, elastic: ElasticTag, template: str | None = None
) -> NodeFacts:
    """Convert one instance in the result of an EC2 describe call into facts. The describe call began at the time
    `started`. `template` is the name of the cluster whose launch template launched the instance, if known.
    """
    cluster = tagged_cluster(instance.tags, [], elastic) or template
    return NodeFacts(
        instance=instance.instance,
        named=ClusterStatement(at=started, cluster=cluster) if cluster else None,
        template=ClusterStatement(at=started, cluster=template) if template else None,
        based=base_tag(instance.tags, started),
        wished=elastic_tag_cluster(instance.tags, (), elastic, started),
        tags_read=TagsRead(started=started, tags=kept_read_tags(instance.tags, elastic)),
        state_read=StateRead(
            started=started, state=instance.state, launched_at=instance.launched_at, private_ip=instance.private_ip
        ),
        machine=Machine(started=started, type=instance.type, market=instance.market) if instance.type else None,
        terminated=instance.state == "terminated",
    )


def facts_of_member(member: SeenMember, started: float, cluster: str, hooks: Mapping[str, str]) -> NodeFacts:
    """Convert one member of an Auto Scaling group into facts. `hooks` are the group's lifecycle hooks, and are given
    only if the event of a lifecycle action was lost. With the names of the hooks, the controller can complete the
    member's lifecycle action by instance id.
    """
    waiting_hooks = {
        f"{hook_name}@{started:.0f}": Hook(
            at=started, group=member.group, hook=hook_name, transition=member.waits, token=None
        )
        for hook_name, transition in hooks.items()
        if member.waits is not None and transition == member.waits
    }
    return NodeFacts(
        instance=member.instance,
        named=ClusterStatement(at=started, cluster=cluster),
        group_read=GroupRead(started=started, group=member.group, phase=member.phase, protected=member.protected),
        hooks=waiting_hooks,
    )


def _read_aws(
    ports: Ports,
    policies: Mapping[str, ClusterPolicy],
    stored: Mapping[str, StoredNode],
    started: float,
    elastic: ElasticTag,
) -> ResyncReading:
    cluster_by_group = (
        {group: cluster for group, cluster in ports.groups.of_own_stacks(OWNER_TAG).items() if cluster in policies}
        if policies
        else {}
    )
    cluster_by_group.update(
        {group: cluster for cluster in sorted(policies, reverse=True) for group in policies[cluster].groups}
    )
    members = ports.groups.members(sorted(cluster_by_group)) if cluster_by_group else ()
    hooks_by_group = {
        group: ports.groups.hooks(group)
        for group in sorted({member.group for member in members if member.waits is not None})
    }
    tag_keys = [OWNER_TAG, *(elastic.of(cluster) for cluster in policies)]
    tagged_instances = ports.instances.tagged(tag_keys) if policies else ()
    instances_by_template = ports.instances.of_templates(map(launch_template_name, policies)) if policies else {}
    launched_instances = {seen.instance: seen for instances in instances_by_template.values() for seen in instances}
    cluster_by_template = {launch_template_name(cluster): cluster for cluster in policies}
    cluster_by_instance = {
        seen.instance: cluster_by_template[template_name]
        for template_name, instances in instances_by_template.items()
        for seen in instances
    }
    living_ids = {instance_id for instance_id, node in stored.items() if not node.facts.terminated} | {
        member.instance for member in members
    }
    seen_by_id = {**launched_instances, **{seen.instance: seen for seen in tagged_instances}}
    missed_instances = living_ids - set(seen_by_id)
    queried_ids = frozenset(
        instance_id for instance_id in missed_instances if _is_query_due(stored.get(instance_id), policies, started)
    )
    described_instances = ports.instances.by_id(sorted(queried_ids)) if queried_ids else ()
    return ResyncReading(
        started,
        [*seen_by_id.values(), *described_instances],
        members,
        hooks_by_group,
        cluster_by_group,
        queried_ids,
        cluster_by_instance,
    )


def _is_query_due(node: StoredNode | None, policies: Mapping[str, ClusterPolicy], now: float) -> bool:
    if node is None or node.facts.named is None:
        return True
    return next_describe_at(node.facts, policies[node.facts.named.cluster].resync_seconds) <= now


def _record_groups(ports: Ports, policies: Mapping[str, ClusterPolicy], reading: ResyncReading) -> None:
    """Store for each Auto Scaling group which cluster's own stack created the group, if the cluster has changed. The
    stored facts let code that knows only a group's name find the group's cluster.
    """
    registered_groups = {group for policy in policies.values() for group in policy.groups}
    cluster_by_group = {group: cluster for group, cluster in reading.owners.items() if group not in registered_groups}
    recorded_clusters = {group: cluster for cluster in policies for group in ports.group_records.of_cluster(cluster)}
    for group in sorted(cluster_by_group.keys() | recorded_clusters.keys()):
        cluster = cluster_by_group.get(group, "")
        if recorded_clusters.get(group, "") != cluster:
            merge_group(
                ports, GroupFacts(group=group, named=ClusterStatement(at=reading.started, cluster=cluster)), wake=False
            )


def _store_doubts(ports: Ports, stored: Mapping[str, StoredNode], reading: ResyncReading, doubts: Doubts) -> None:
    """Store which instances EC2 did not show, and which lost members wait for a second reading. Storing the doubts
    starts no run of `converge`.
    """
    seen_ids = {instance.instance for instance in reading.instances}
    for instance, node in stored.items():
        missed_count = missed_read_count(node.facts)
        missed_reads = doubt = None
        if instance in reading.queried and instance not in seen_ids:
            missed_reads = MissedReads(at=reading.started, times=missed_count + 1)
            log.error("EC2 does not show an instance", extra={"instance": instance, "times": missed_count + 1})
        elif missed_count and instance in seen_ids:
            missed_reads = MissedReads(at=reading.started, times=0)
        if instance in doubts.notes:
            doubt = Doubt(at=reading.started, lost=doubts.notes[instance])
        new_acks = Acks(unseen=missed_reads, doubt=doubt)
        if new_acks != NO_ACKS:
            merge(ports, NodeFacts(instance=instance, acks=new_acks), wake=False)


def _read_facts(
    policies: Mapping[str, ClusterPolicy], stored: Mapping[str, StoredNode], reading: ResyncReading, elastic: ElasticTag
) -> list[NodeFacts]:
    facts_by_instance: dict[str, list[NodeFacts]] = {}
    read_started = reading.started
    for seen_instance in reading.instances:
        facts_by_instance.setdefault(seen_instance.instance, []).append(
            facts_of_instance(seen_instance, read_started, elastic, reading.templates.get(seen_instance.instance))
        )
    for member in reading.members:
        policy = policies[reading.owners[member.group]]
        missed_hooks = (
            reading.hooks.get(member.group, {})
            if _event_was_missed(stored.get(member.instance), member, read_started - policy.settling_seconds)
            else {}
        )
        facts_by_instance.setdefault(member.instance, []).append(
            facts_of_member(member, read_started, policy.cluster, missed_hooks)
        )
    member_ids = {member.instance for member in reading.members}
    for instance_id, node in stored.items():
        group_facts = node.facts.group_event or node.facts.group_read
        if (
            group_facts is not None
            and group_facts.group in reading.owners
            and instance_id not in member_ids
            and not node.facts.terminated
        ):
            facts_by_instance.setdefault(instance_id, []).append(
                NodeFacts(instance=instance_id, group_read=GroupRead(started=read_started, group=None, phase=None))
            )
    return [join_all(instance_facts[0], instance_facts[1:]) for instance_facts in facts_by_instance.values()]


def _event_was_missed(stored_node: StoredNode | None, member: SeenMember, settled_before: float) -> bool:
    """Whether the member of an Auto Scaling group waits for a lifecycle action that no event announced and that was not
    answered recently.
    """
    hooks = stored_node.facts.hooks if stored_node is not None else {}
    acks = stored_node.facts.acks if stored_node is not None else NO_ACKS
    hook_answers = [acks.answers.get(key) for key, hook in hooks.items() if hook.transition == member.waits]
    return all(
        answer is not None and answer.result != NO_HEARTBEAT and answer.at < settled_before for answer in hook_answers
    )


def _has_decisive_change(
    stored_node: StoredNode | None,
    news: NodeFacts,
    policies: Mapping[str, ClusterPolicy],
    elastic: ElasticTag,
    now: float,
) -> bool:
    """Whether storing the newly read facts `news` would change facts about the node on which decisions depend."""
    facts_before = stored_node.facts if stored_node is not None else NodeFacts(instance=news.instance)
    facts_after = facts_before.join(news)
    cluster = facts_after.named.cluster if facts_after.named is not None else None
    if cluster is None or cluster not in policies:
        return False
    rules = Rules(policies[cluster], elastic)
    return facts_before.named is None or _decisive_facts(facts_before, rules, now) != _decisive_facts(
        facts_after, rules, now
    )


@dataclass(frozen=True)
class _DecisiveFacts:
    """The facts about a node on which the controller's decisions depend."""

    cluster: str | None  # the cluster to which the node belongs
    tags: Mapping[str, str] | None  # without the status tag
    elastic: bool  # the node is an elastic node
    base: bool  # the node is a base node
    state: InstanceState | None
    terminated: bool
    requested: bool  # the node has or had the elastic tag, or took part in the job
    group: str | None  # the Auto Scaling group's name
    phase: Phase | None  # phase of the instance in the group
    mirror: str | None  # the value of the node's status tag
    preparation: Preparation | None  # the node's last report about its preparation
    pending: frozenset[tuple[str, str, str]]  # open lifecycle actions: group, hook, transition
    unprotected: bool  # whether the group may end this base node
    launched: bool  # by the cluster's launch template
    machine: tuple[str, str] | None  # instance type and market
    closed: bool  # whether the controller ended it as a base node of a closed cluster


def _decisive_facts(facts: NodeFacts, rules: Rules, now: float) -> _DecisiveFacts:
    node_view = view(facts, rules, now)
    return _DecisiveFacts(
        cluster=facts.named.cluster if facts.named is not None else None,
        tags={key: value for key, value in node_view.tags.items() if key != STATUS_TAG}
        if node_view.tags is not None
        else None,
        elastic=node_view.elastic,
        base=node_view.base,
        state=node_view.state,
        terminated=node_view.terminated,
        requested=node_view.requested,
        group=node_view.group,
        phase=node_view.phase,
        mirror=node_view.status_tag,
        preparation=node_view.preparation,
        pending=frozenset((hook.group, hook.hook, hook.transition) for hook in facts.hooks.values()),
        unprotected=node_view.base and facts.group_read is not None and facts.group_read.protected is False,
        launched=node_view.launched,
        machine=(facts.machine.type, facts.machine.market) if facts.machine is not None else None,
        closed=node_view.closed is not None,
    )


def _tick_clusters(ports: Ports, policies: Mapping[str, ClusterPolicy], *, surveyed: bool) -> None:
    now = ports.clock()
    for cluster in policies:
        ports.clusters.tick(cluster, now, surveyed=surveyed)
