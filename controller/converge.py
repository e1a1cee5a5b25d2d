"""Makes AWS and the job agree with the facts of one cluster. Runs on the table's stream; two runs may overlap.

1. gather: the cluster's nodes (by the index, joined with the records' own images), the job, the membership
2. decide: pure; what would change the membership or end an instance is first confirmed by consistent reads
3. apply: settle the membership by compare-and-set, publish it, do the actions, acknowledge what took effect
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.actions import Terminate, TerminateInGroup, instances
from controller.alarms import GIVEN_UP
from controller.errors import Conflict, ControllerError, RetryLater
from controller.execute import perform
from controller.facts import Ack, Named, NodeFacts
from controller.intake import merge
from controller.planning import Decision, decide, status_line, without
from controller.ports import Ports, StoredMembership, StoredNode, Wake
from controller.publish import parameter_target, published_revision
from controller.registry import Registry
from controller.resync import facts_of_instance
from controller.scaling import settle_capacity
from controller.target import Membership
from controller.view import Rules, ask_again_at

log = logging.getLogger("dyntrain.converge")

ATTEMPTS = 6
CONFIRMATIONS = 3


def converge(ports: Ports, registry: Registry, wake: Wake, suffix: str) -> list[Decision]:
    """Every cluster concerned, each on its own: what fails for one is raised (RetryLater) after the others had their turn."""
    decisions, failures = [], []
    for cluster, nodes in _concerned(ports, registry, wake).items():
        policy = registry.policy(cluster)
        if policy is None:
            log.warning("no valid policy: nothing done", extra={"cluster": cluster})
            continue
        try:
            rules = Rules(policy, suffix, found_groups(ports, registry, cluster))
            every = cluster in wake.clusters | wake.ticked or not nodes
            decision = _converge(ports, rules, nodes, repair=cluster in wake.ticked, every=every)
            decisions.append(decision)
            scaled = settle_capacity(ports, rules, wake.groups, every=cluster in wake.ticked)  # last: nodes do not wait for it
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


def _converge(ports: Ports, rules: Rules, images: Mapping[str, StoredNode], repair: bool, every: bool) -> Decision:
    """`every` False: nodes whose own records are still to be handled are counted, and left for that pass to act on.

    So a thousand events cost one acknowledgement a node, though several passes see most of the nodes. A record that was never handled leaves
    its node without a status; the next tick acts on all of them.
    """
    cluster = rules.policy.cluster
    for _ in range(ATTEMPTS):
        nodes = _gather(ports, rules, images, every)
        job, _version = ports.jobs.get(cluster)
        stored = _membership(ports, cluster)
        published = stored.published
        if repair and stored.membership.revision > 0:
            published = published_revision(ports, cluster, stored.membership)
        decision = decide((node.facts for node in nodes.values()), stored.membership, job, rules, ports.clock(), published)
        for _ in range(CONFIRMATIONS):
            newer = _confirm(ports, nodes, _critical(decision, stored.membership))
            if not newer:
                break
            nodes.update(newer)
            decision = decide((node.facts for node in nodes.values()), stored.membership, job, rules, ports.clock(), published)
        if decision.membership is not stored.membership:
            try:
                ports.clusters.put(cluster, replace(stored, membership=decision.membership))
            except Conflict:
                continue
        if not every:
            decision = without(decision, {instance for instance, node in nodes.items() if instance not in images and _awaits_its_own_pass(node)})
        _apply(ports, rules, decision, nodes)
        return decision
    raise RetryLater(f"the membership of {cluster} was changed by others {ATTEMPTS} times in a row")


def _membership(ports: Ports, cluster: str) -> StoredMembership:
    """A cluster whose item was lost goes on above the revision that its coordinator has seen: a lower one would be refused."""
    stored = ports.clusters.get(cluster)
    if stored.version:
        return stored
    published = parameter_target(ports, cluster)
    seen = published.revision if published is not None else 0
    term, coordinator = (published.term, published.coordinator) if published is not None else (0, None)
    return replace(stored, membership=Membership(revision=seen, coordinator=coordinator, term=term), published=seen)


def _gather(ports: Ports, rules: Rules, images: Mapping[str, StoredNode], every: bool) -> dict[str, StoredNode]:
    nodes = dict(ports.nodes.of_cluster(rules.policy.cluster))
    nodes.update({instance: image for instance, image in images.items() if instance not in nodes or nodes[instance].version < image.version})
    nodes = {instance: _named(node, rules.policy.cluster) for instance, node in nodes.items()}
    started = ports.clock()
    asking = {instance: node for instance, node in nodes.items() if (every or instance in images) and _bare(node.facts)}
    bare = [instance for instance, node in asking.items() if ask_again_at(node.facts, rules.policy.resync_seconds) <= started]
    if bare:
        for seen in ports.instances.by_id(bare):
            node = nodes[seen.instance]
            nodes[seen.instance] = replace(node, facts=node.facts.join(facts_of_instance(seen, started, rules.suffix)))
    return {instance: node for instance, node in nodes.items() if node.facts.named is None or node.facts.named.cluster == rules.policy.cluster}


def _awaits_its_own_pass(node: StoredNode) -> bool:
    return node.pending or "status" not in node.facts.acks


def _bare(facts: NodeFacts) -> bool:
    return not (facts.tags_event or facts.tags_read or facts.terminated)


def _named(node: StoredNode, cluster: str) -> StoredNode:
    """A member of a registered group that nobody has named gets its cluster's name, which the index goes by."""
    if node.facts.named is not None or node.facts.group_event is None:
        return node
    naming = NodeFacts(instance=node.facts.instance, named=Named(at=node.facts.group_event.at, cluster=cluster))
    return replace(node, facts=node.facts.join(naming))


def _critical(decision: Decision, old: Membership) -> set[str]:
    """Nodes whose facts must not be a moment old: those that join or leave the target, lose or take the coordinator, and those that are ended."""
    ended = [instance for action in decision.actions if isinstance(action, Terminate | TerminateInGroup) for instance in instances(action)]
    coordinators = {old.coordinator, decision.membership.coordinator} if decision.nomination is not None else set()
    return set(old.members) ^ set(decision.membership.members) | set(ended) | {instance for instance in coordinators if instance is not None}


def _confirm(ports: Ports, nodes: Mapping[str, StoredNode], critical: Iterable[str]) -> dict[str, StoredNode]:
    latest = ports.nodes.get_many(sorted(critical))
    return {
        instance: replace(node, facts=node.facts.join(nodes[instance].facts) if instance in nodes else node.facts)
        for instance, node in latest.items()
        if instance not in nodes or node.version > nodes[instance].version
    }


def _apply(ports: Ports, rules: Rules, decision: Decision, nodes: Mapping[str, StoredNode]) -> None:
    cluster, now = rules.policy.cluster, ports.clock()
    trail: list[dict[str, str]] = []
    acks: dict[str, dict[str, Ack]] = {}
    for change in decision.changes:
        line = status_line(change.standing)
        acks[change.instance] = {"status": Ack(at=now, value=line)}
        trail.append({"kind": "status", "instance": change.instance, "before": change.before, "after": line, "detail": change.standing.detail})
        log.info("status", extra={"cluster": cluster, "revision": decision.membership.revision, **trail[-1]})
    for alarm in decision.alarms:
        ports.metrics.count(alarm.metric, cluster, len(alarm.instances))
        log.error(alarm.metric, extra={"cluster": cluster, "instances": " ".join(alarm.instances), "problem": alarm.sentence})
        trail += [{"kind": alarm.metric, "instance": instance, "detail": alarm.sentence} for instance in alarm.instances]
        for instance in alarm.instances:
            acks.setdefault(instance, {})[f"alarm:{alarm.metric}"] = Ack(at=now, value=alarm.about[instance])
    if (nomination := decision.nomination) is not None:
        fields = {"coordinator": nomination.coordinator or "", "term": str(nomination.term), "detail": nomination.ground.value}
        trail.append({"kind": "nomination", **fields})
        log.warning("nomination", extra={"cluster": cluster, **fields})
    done = perform(ports, cluster, decision.actions)
    for instance, effects in done.acks.items():
        acks.setdefault(instance, {}).update(effects)
    for instance, remembered in acks.items():  # one write a node that does not wake the stream: names, first reads, acknowledgements
        merge(ports, nodes[instance].facts.join(NodeFacts(instance=instance, acks=remembered)), wake=False, known=nodes[instance])
    if trail or done.trail:
        ports.clusters.record(cluster, now, [*trail, *done.trail])
    if done.failures:
        raise RetryLater("; ".join(done.failures))
