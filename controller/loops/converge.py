"""Makes AWS and the job agree with the facts of one cluster. Runs on the table's stream; two runs may overlap.

1. gather: the cluster's nodes (by the index, joined with the records' own images), the job, the membership
2. decide: pure; what would change the membership or end an instance is first confirmed by consistent reads
3. apply: settle the membership by compare-and-set, publish it, do the actions, acknowledge what took effect
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Conflict, ControllerError, RetryLater
from dyntrain.controller.core.decisions.actions import Ending, instances
from dyntrain.controller.core.decisions.alarms import GIVEN_UP, TARGET_DISPUTED
from dyntrain.controller.core.history.trail import AlarmRaised, Entry, Nominated, StatusChanged
from dyntrain.controller.core.known.acks import NONE, Acks, Announced, Done
from dyntrain.controller.core.known.facts import Named, NodeFacts
from dyntrain.controller.core.planning import Decision, decide, without
from dyntrain.controller.core.views.target import Membership, above
from dyntrain.controller.core.views.view import Rules, ask_again_at
from dyntrain.controller.loops.execute import perform
from dyntrain.controller.loops.intake import merge
from dyntrain.controller.loops.ports import Ports, StoredNode, Wake
from dyntrain.controller.loops.publish import disputed, parameter_target
from dyntrain.controller.loops.rebuild import awaits_job, membership_of, take_members
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.loops.resync import facts_of_instance
from dyntrain.controller.loops.scaling import settle_capacity

log = logging.getLogger("dyntrain.converge")

ATTEMPTS = 6
CONFIRMATIONS = 3


def converge(ports: Ports, registry: Registry, wake: Wake, elastic: ElasticTag) -> list[Decision]:
    """Every cluster concerned, each on its own: what fails for one is raised (RetryLater) after the others had their
    turn.
    """
    decisions, failures = [], []
    for cluster, nodes in _concerned(ports, registry, wake).items():
        policy = registry.policy(cluster)
        if policy is None:
            log.warning("no valid policy: nothing done", extra={"cluster": cluster})
            continue
        try:
            rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
            every = cluster in wake.clusters | wake.ticked or not nodes
            decision = _converge(
                ports, rules, nodes, repair=cluster in wake.ticked, every=every, surveyed=cluster in wake.surveyed
            )
            if decision is None:
                continue
            decisions.append(decision)
            # last: nodes do not wait for it
            scaled = settle_capacity(ports, rules, decision, wake.groups, every=cluster in wake.ticked)
            decisions[-1] = replace(decision, actions=(*decision.actions, *scaled))
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
    """Groups that carry the cluster's ownership tag; what another cluster has registered is that one's."""
    found = sorted(ports.group_records.of_cluster(cluster))
    return tuple(group for group in found if registry.of_group(group) in (None, cluster))


def _concerned(ports: Ports, registry: Registry, wake: Wake) -> dict[str, dict[str, StoredNode]]:
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
    """By the name somebody gave, else by the group the instance is in."""
    if facts.named is not None:
        return facts.named.cluster
    return _owner_of(ports, registry, facts.group_event.group) if facts.group_event is not None else None


def _owner_of(ports: Ports, registry: Registry, group: str) -> str | None:
    """By registration, else by the tag that the resync found on the group."""
    registered = registry.of_group(group)
    if registered is not None:
        return registered
    stored = ports.group_records.get(group)
    named = stored.facts.named if stored is not None else None
    return named.cluster or None if named is not None else None


def _converge(
    ports: Ports, rules: Rules, images: Mapping[str, StoredNode], repair: bool, every: bool, surveyed: bool
) -> Decision | None:
    """None: the table has lost what the controller knew of the cluster, and it is not known again yet.

    `every` False: nodes whose own records are still to be handled are counted, and left for that pass to act on.

    So a thousand events cost one acknowledgement a node, though several passes see most of the nodes. A record that was
    never handled leaves its node without a status; the next tick acts on all of them.
    """
    cluster = rules.policy.cluster
    for _ in range(ATTEMPTS):
        nodes = _gather(ports, rules, images, every)
        job, _version = ports.jobs.get(cluster)
        stored = membership_of(ports, cluster, surveyed=surveyed)
        if stored is None or awaits_job(stored.membership, job, rules.policy, ports.clock()):
            return None
        published, foreign, old = stored.published, "", stored.membership
        if repair and stored.membership.revision > 0:
            published, foreign, old = _parameter(ports, cluster, stored.membership)
        if not stored.membership.listed:
            take_members(ports, rules, stored, job, (node.facts for node in nodes.values()))
            continue
        decision = decide((node.facts for node in nodes.values()), old, job, rules, ports.clock(), published)
        read_again: set[str] = set()
        for _ in range(CONFIRMATIONS):
            newer = _confirm(ports, nodes, _critical(decision, old))
            ends = _ended(decision) - read_again
            if ends:
                newer = {**newer, **_read_again(ports, rules, {**nodes, **newer}, ends)}
                read_again |= ends
            if not newer:
                break
            nodes.update(newer)
            decision = decide((node.facts for node in nodes.values()), old, job, rules, ports.clock(), published)
        if decision.membership is not stored.membership:
            try:
                ports.clusters.put(cluster, replace(stored, membership=decision.membership))
            except Conflict:
                continue
        if foreign:  # known for sure only now: nobody had moved the membership on meanwhile
            _tell_foreign(ports, cluster, foreign)
        if not every:
            decision = without(
                decision,
                {instance for instance, node in nodes.items() if instance not in images and _awaits_its_own_pass(node)},
            )
        _apply(ports, rules, decision, nodes)
        return decision
    raise RetryLater(f"the membership of {cluster} was changed by others {ATTEMPTS} times in a row")


def _parameter(ports: Ports, cluster: str, membership: Membership) -> tuple[int, str, Membership]:
    """The revision that the parameter holds; why it cannot be ours; and the membership to go on from, which is above
    it then, as a coordinator refuses what is below or contradicts.
    """
    found = parameter_target(ports, cluster)
    if found is None:
        return -1, "", membership
    foreign = disputed(cluster, found, membership)
    if not foreign and found.revision > membership.revision:
        foreign = (
            f"the parameter target of {cluster} holds revision {found.revision}, and the table knows of "
            f"{membership.revision}: the table is of a backup, or another controller serves this cluster"
        )
    return found.revision, foreign, above(membership, found) if foreign else membership


def _tell_foreign(ports: Ports, cluster: str, problem: str) -> None:
    ports.metrics.count(TARGET_DISPUTED, cluster)
    log.error(TARGET_DISPUTED, extra={"cluster": cluster, "problem": problem})
    ports.clusters.record(cluster, ports.clock(), [AlarmRaised(kind=TARGET_DISPUTED, detail=problem)])


def _gather(ports: Ports, rules: Rules, images: Mapping[str, StoredNode], every: bool) -> dict[str, StoredNode]:
    nodes = dict(ports.nodes.of_cluster(rules.policy.cluster))
    nodes.update(
        {
            instance: image
            for instance, image in images.items()
            if instance not in nodes or nodes[instance].version < image.version
        }
    )
    nodes = {instance: _named(node, rules.policy.cluster) for instance, node in nodes.items()}
    started = ports.clock()
    asking = {instance: node for instance, node in nodes.items() if (every or instance in images) and _bare(node.facts)}
    bare = [
        instance
        for instance, node in asking.items()
        if ask_again_at(node.facts, rules.policy.resync_seconds) <= started
    ]
    if bare:
        for seen in ports.instances.by_id(bare):
            node = nodes[seen.instance]
            nodes[seen.instance] = replace(node, facts=node.facts.join(facts_of_instance(seen, started, rules.elastic)))
    return {
        instance: node
        for instance, node in nodes.items()
        if node.facts.named is None or node.facts.named.cluster == rules.policy.cluster
    }


def _awaits_its_own_pass(node: StoredNode) -> bool:
    return node.pending or node.facts.acks.status is None


def _bare(facts: NodeFacts) -> bool:
    return not (facts.tags_event or facts.tags_read or facts.terminated)


def _named(node: StoredNode, cluster: str) -> StoredNode:
    """A member of a registered group that nobody has named gets its cluster's name, which the index goes by."""
    if node.facts.named is not None or node.facts.group_event is None:
        return node
    naming = NodeFacts(instance=node.facts.instance, named=Named(at=node.facts.group_event.at, cluster=cluster))
    return replace(node, facts=node.facts.join(naming))


def _critical(decision: Decision, old: Membership) -> set[str]:
    """Nodes whose facts must not be a moment old: those that join or leave the target, lose or take the coordinator,
    and those that are ended.
    """
    coordinators = {old.coordinator, decision.membership.coordinator} if decision.nomination is not None else set()
    return (
        set(old.members) ^ set(decision.membership.members)
        | _ended(decision)
        | {instance for instance in coordinators if instance is not None}
    )


def _ended(decision: Decision) -> set[str]:
    ends = [action for action in decision.actions if isinstance(action, Ending)]
    return {instance for action in ends for instance in instances(action)}


def _read_again(
    ports: Ports, rules: Rules, nodes: Mapping[str, StoredNode], ends: Iterable[str]
) -> dict[str, StoredNode]:
    """Those whose facts a fresh look at EC2 changes: nothing is ended on a reading that may have been partial."""
    started = ports.clock()
    found = {}
    for seen in ports.instances.by_id(sorted(ends)):
        node = nodes[seen.instance]
        facts = node.facts.join(facts_of_instance(seen, started, rules.elastic))
        if facts != node.facts:
            found[seen.instance] = replace(node, facts=facts)
    return found


def _confirm(ports: Ports, nodes: Mapping[str, StoredNode], critical: Iterable[str]) -> dict[str, StoredNode]:
    latest = ports.nodes.get_many(sorted(critical))
    return {
        instance: replace(node, facts=node.facts.join(nodes[instance].facts) if instance in nodes else node.facts)
        for instance, node in latest.items()
        if instance not in nodes or node.version > nodes[instance].version
    }


def _apply(ports: Ports, rules: Rules, decision: Decision, nodes: Mapping[str, StoredNode]) -> None:
    cluster = rules.policy.cluster
    trail, acks = _told(ports, rules, decision)
    performed = perform(ports, cluster, decision.actions)
    for instance, effects in performed.acks.items():
        acks[instance] = acks.get(instance, NONE).join(effects)
    for instance, remembered in acks.items():
        # one write a node that does not wake the stream: names, first reads, acknowledgements
        facts = nodes[instance].facts.join(NodeFacts(instance=instance, acks=remembered))
        merge(ports, facts, wake=False, known=nodes[instance])
    if trail or performed.trail:
        ports.clusters.record(cluster, ports.clock(), [*trail, *performed.trail])
    if performed.failures:
        raise RetryLater("; ".join(performed.failures))


def _told(ports: Ports, rules: Rules, decision: Decision) -> tuple[list[Entry], dict[str, Acks]]:
    """Tells people what has changed; returns it for the audit trail, and what each node remembers to have been told."""
    cluster, now = rules.policy.cluster, ports.clock()
    trail: list[Entry] = []
    acks: dict[str, Acks] = {}
    for change in decision.changes:
        changed = StatusChanged(
            instance=change.instance,
            before=change.before,
            after=change.standing.line,
            detail=change.standing.detail,
        )
        joined = {cluster: Done(at=now)} if change.standing.status == "ADDED" else {}
        acks[change.instance] = Acks(status=Announced(at=now, value=change.standing.line), joined=joined)
        trail.append(changed)
        log.info("status", extra={"cluster": cluster, "revision": decision.membership.revision, **changed.fields()})
    for alarm in decision.alarms:
        ports.metrics.count(alarm.metric, cluster, len(alarm.instances))
        log.error(
            alarm.metric, extra={"cluster": cluster, "instances": " ".join(alarm.instances), "problem": alarm.sentence}
        )
        for instance in alarm.instances:
            trail.append(AlarmRaised(kind=alarm.metric, instance=instance, detail=alarm.sentence))
            alarmed = Acks(alarms={alarm.metric: Announced(at=now, value=alarm.about[instance])})
            acks[instance] = acks.get(instance, NONE).join(alarmed)
    for entry in decision.metered:
        trail.append(entry)
        billed = Acks(billed=Announced(at=now, value=entry.line))
        acks[entry.instance] = acks.get(entry.instance, NONE).join(billed)
    if (nomination := decision.nomination) is not None:
        nominated = Nominated(
            coordinator=nomination.coordinator or "", term=nomination.term, detail=nomination.reason.value
        )
        trail.append(nominated)
        log.warning("nomination", extra={"cluster": cluster, **nominated.fields()})
    return trail, acks
