"""Reads EC2 and Auto Scaling in each period, stores differences as facts, and has every cluster checked.

1. gather: all instances and group members of all clusters; a failed read changes no facts
2. decide: which nodes differ from their stored facts
3. apply: write the facts of these nodes
4. tick: have each cluster checked, also after a failed read
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import (
    OWNER_TAG,
    STATUS_TAG,
    ClusterPolicy,
    launch_template_name,
)
from dyntrain.controller.core.decisions.alarms import POLICY_INVALID, READ_FAILED
from dyntrain.controller.core.incoming.events import elastic_tag_cluster, read_tags, tagged_cluster
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
from dyntrain.controller.core.views.view import Rules, ask_again_at, unseen_times, view
from dyntrain.controller.loops.doubts import Doubts, doubtful_losses
from dyntrain.controller.loops.intake import merge, merge_group
from dyntrain.controller.loops.ports import Ports, SeenInstance, SeenMember, StoredNode
from dyntrain.controller.loops.registry import Registry

log = logging.getLogger("dyntrain.resync")


@dataclass(frozen=True)
class Resynced:
    """The result of a resync. `complete` False: a read failed, and nothing but the ticks was written. `held`: clusters
    whose losses wait for a second reading.
    """

    clusters: int
    seen: int
    written: int
    complete: bool
    held: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResyncReading:
    """Everything that one resync read. `owners`: the cluster of each group, by registration or by its stack; `queried`:
    instances described by id, shown or not; `templates`: the cluster whose launch template an instance came from.
    """

    started: float
    instances: Sequence[SeenInstance]
    members: Sequence[SeenMember]
    hooks: Mapping[str, Mapping[str, str]]
    owners: Mapping[str, str]
    queried: frozenset[str]
    templates: Mapping[str, str]


def resync(ports: Ports, registry: Registry, elastic: ElasticTag) -> Resynced:
    policies = registry.all()
    for cluster in registry.problems():  # each time, so that the alarm stays until the policy is correct
        ports.metrics.count(POLICY_INVALID, cluster)
    started = ports.clock()
    try:
        stored = {instance: node for cluster in policies for instance, node in ports.nodes.of_cluster(cluster).items()}
        reading = _read(ports, policies, stored, started, elastic)
        _record_groups(ports, policies, reading)
    except ControllerError as error:
        _tick(ports, policies, surveyed=False)
        log.error("a read failed: the facts of earlier reads stay", extra={"problem": str(error)})
        for cluster in policies:
            ports.metrics.count(READ_FAILED, cluster)
        return Resynced(len(policies), 0, 0, complete=False)
    changed_facts: list[tuple[NodeFacts, StoredNode | None]] = []
    for news in _news(policies, stored, reading, elastic):
        stored_node = stored.get(news.instance) or ports.nodes.get(news.instance)
        if _differs(stored_node, news, policies, elastic, started):
            changed_facts.append((news, stored_node))
    doubts = doubtful_losses(ports, policies, stored, changed_facts, elastic, started)
    written = sum(
        merge(ports, news, wake=True, known=known) is None
        for news, known in changed_facts
        if news.instance not in doubts.instances
    )
    _remember(ports, stored, reading, doubts)
    _tick(ports, policies, surveyed=not doubts.clusters)
    log.info("resync", extra={"clusters": len(policies), "seen": len(reading.instances), "written": written})
    return Resynced(len(policies), len(reading.instances), written, complete=True, held=doubts.clusters)


def facts_of_instance(
    instance: SeenInstance, started: float, elastic: ElasticTag, template: str | None = None
) -> NodeFacts:
    """Facts from a describe call that began at `started`. `template`: the cluster whose launch template was used,
    if known.
    """
    cluster = tagged_cluster(instance.tags, [], elastic) or template
    return NodeFacts(
        instance=instance.instance,
        named=ClusterStatement(at=started, cluster=cluster) if cluster else None,
        template=ClusterStatement(at=started, cluster=template) if template else None,
        based=base_tag(instance.tags, started),
        wished=elastic_tag_cluster(instance.tags, (), elastic, started),
        tags_read=TagsRead(started=started, tags=read_tags(instance.tags, elastic)),
        state_read=StateRead(
            started=started, state=instance.state, launched_at=instance.launched_at, private_ip=instance.private_ip
        ),
        machine=Machine(started=started, type=instance.type, market=instance.market) if instance.type else None,
        terminated=instance.state == "terminated",
    )


def facts_of_member(member: SeenMember, started: float, cluster: str, hooks: Mapping[str, str]) -> NodeFacts:
    """Facts of a group's member. `hooks` are the group's lifecycle hooks, given after a lost event: the
    controller then completes the member's lifecycle action by instance id.
    """
    waiting = {
        f"{name}@{started:.0f}": Hook(at=started, group=member.group, hook=name, transition=member.waits, token=None)
        for name, transition in hooks.items()
        if member.waits is not None and transition == member.waits
    }
    return NodeFacts(
        instance=member.instance,
        named=ClusterStatement(at=started, cluster=cluster),
        group_read=GroupRead(started=started, group=member.group, phase=member.phase, protected=member.protected),
        hooks=waiting,
    )


def _read(
    ports: Ports,
    policies: Mapping[str, ClusterPolicy],
    stored: Mapping[str, StoredNode],
    started: float,
    elastic: ElasticTag,
) -> ResyncReading:
    owners = (
        {group: cluster for group, cluster in ports.groups.of_own_stacks(OWNER_TAG).items() if cluster in policies}
        if policies
        else {}
    )
    owners.update({group: cluster for cluster in sorted(policies, reverse=True) for group in policies[cluster].groups})
    members = ports.groups.members(sorted(owners)) if owners else ()
    hooks = {
        group: ports.groups.hooks(group)
        for group in sorted({member.group for member in members if member.waits is not None})
    }
    keys = [OWNER_TAG, *(elastic.of(cluster) for cluster in policies)]
    tagged = ports.instances.tagged(keys) if policies else ()
    of_templates = ports.instances.of_templates(map(launch_template_name, policies)) if policies else {}
    launched = {seen.instance: seen for group in of_templates.values() for seen in group}
    clusters = {launch_template_name(cluster): cluster for cluster in policies}
    templates = {seen.instance: clusters[name] for name, group in of_templates.items() for seen in group}
    living = {instance for instance, node in stored.items() if not node.facts.terminated} | {
        member.instance for member in members
    }
    seen_by_now = {**launched, **{seen.instance: seen for seen in tagged}}
    missed_instances = living - set(seen_by_now)
    queried = frozenset(
        instance for instance in missed_instances if _is_query_due(stored.get(instance), policies, started)
    )
    described = ports.instances.by_id(sorted(queried)) if queried else ()
    return ResyncReading(started, [*seen_by_now.values(), *described], members, hooks, owners, queried, templates)


def _is_query_due(node: StoredNode | None, policies: Mapping[str, ClusterPolicy], now: float) -> bool:
    if node is None or node.facts.named is None:
        return True
    return ask_again_at(node.facts, policies[node.facts.named.cluster].resync_seconds) <= now


def _record_groups(ports: Ports, policies: Mapping[str, ClusterPolicy], reading: ResyncReading) -> None:
    """Store which groups the clusters' own stacks created, if that has changed. Code that has only a group's name
    reads it.
    """
    registered = {group for policy in policies.values() for group in policy.groups}
    of_stacks = {group: cluster for group, cluster in reading.owners.items() if group not in registered}
    recorded = {group: cluster for cluster in policies for group in ports.group_records.of_cluster(cluster)}
    for group in sorted(of_stacks.keys() | recorded.keys()):
        cluster = of_stacks.get(group, "")
        if recorded.get(group, "") != cluster:
            merge_group(
                ports, GroupFacts(group=group, named=ClusterStatement(at=reading.started, cluster=cluster)), wake=False
            )


def _remember(ports: Ports, stored: Mapping[str, StoredNode], reading: ResyncReading, doubts: Doubts) -> None:
    """Store instances that EC2 did not show, and losses that wait for a second reading, without waking the stream."""
    seen = {instance.instance for instance in reading.instances}
    for instance, node in stored.items():
        times = unseen_times(node.facts)
        unseen = doubt = None
        if instance in reading.queried and instance not in seen:
            unseen = MissedReads(at=reading.started, times=times + 1)
            log.error("EC2 does not show an instance", extra={"instance": instance, "times": times + 1})
        elif times and instance in seen:
            unseen = MissedReads(at=reading.started, times=0)
        if instance in doubts.notes:
            doubt = Doubt(at=reading.started, lost=doubts.notes[instance])
        notes = Acks(unseen=unseen, doubt=doubt)
        if notes != NO_ACKS:
            merge(ports, NodeFacts(instance=instance, acks=notes), wake=False)


def _news(
    policies: Mapping[str, ClusterPolicy], stored: Mapping[str, StoredNode], reading: ResyncReading, elastic: ElasticTag
) -> list[NodeFacts]:
    news: dict[str, list[NodeFacts]] = {}
    started = reading.started
    for described in reading.instances:
        news.setdefault(described.instance, []).append(
            facts_of_instance(described, started, elastic, reading.templates.get(described.instance))
        )
    for member in reading.members:
        policy = policies[reading.owners[member.group]]
        missed_hooks = (
            reading.hooks.get(member.group, {})
            if _missed_event(stored.get(member.instance), member, started - policy.settling_seconds)
            else {}
        )
        news.setdefault(member.instance, []).append(facts_of_member(member, started, policy.cluster, missed_hooks))
    in_groups = {member.instance for member in reading.members}
    for instance, node in stored.items():
        known = node.facts.group_event or node.facts.group_read
        if (
            known is not None
            and known.group in reading.owners
            and instance not in in_groups
            and not node.facts.terminated
        ):
            news.setdefault(instance, []).append(
                NodeFacts(instance=instance, group_read=GroupRead(started=started, group=None, phase=None))
            )
    return [join_all(parts[0], parts[1:]) for parts in news.values()]


def _missed_event(known: StoredNode | None, member: SeenMember, settled: float) -> bool:
    """Whether the member waits for a lifecycle action without an event and without a recent answer."""
    hooks = known.facts.hooks if known is not None else {}
    acks = known.facts.acks if known is not None else NO_ACKS
    answers = [acks.answers.get(key) for key, hook in hooks.items() if hook.transition == member.waits]
    return all(answer is not None and answer.result != NO_HEARTBEAT and answer.at < settled for answer in answers)


def _differs(
    known: StoredNode | None, news: NodeFacts, policies: Mapping[str, ClusterPolicy], elastic: ElasticTag, now: float
) -> bool:
    """Whether storing this reading would change facts of the node on which decisions depend."""
    before = known.facts if known is not None else NodeFacts(instance=news.instance)
    after = before.join(news)
    cluster = after.named.cluster if after.named is not None else None
    if cluster is None or cluster not in policies:
        return False
    rules = Rules(policies[cluster], elastic)
    return before.named is None or _decisive_facts(before, rules, now) != _decisive_facts(after, rules, now)


@dataclass(frozen=True)
class _DecisiveFacts:
    """The facts of a node that decisions depend on. `pending`: the node's lifecycle actions; `unprotected`: the
    group may end this base node.
    """

    cluster: str | None
    tags: Mapping[str, str] | None
    elastic: bool
    base: bool
    state: InstanceState | None
    terminated: bool
    requested: bool
    group: str | None
    phase: Phase | None
    mirror: str | None
    preparation: Preparation | None
    pending: frozenset[tuple[str, str, str]]
    unprotected: bool
    launched: bool
    machine: tuple[str, str] | None
    closed: bool


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


def _tick(ports: Ports, policies: Mapping[str, ClusterPolicy], *, surveyed: bool) -> None:
    now = ports.clock()
    for cluster in policies:
        ports.clusters.tick(cluster, now, surveyed=surveyed)
