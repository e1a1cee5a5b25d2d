"""Recovers from an empty table while a job runs: takes over the published target before the first decision.

The steps of the recovery:
1. a resync reads EC2 and Auto Scaling and writes the nodes' facts, as usual; its tick says that the resync was complete
2. at that tick the membership is taken over from the parameter `target`; its members count as prepared, since only
   prepared nodes become members
3. until the coordinator reports, or has been silent so long that it counts as lost, nothing is published or ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, GiveUp, RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy, Target
from dyntrain.controller.core.history.trail import Rebuilt
from dyntrain.controller.core.records.facts import ClusterStatement, NodeFacts, Preparation
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership, rebuilt_membership, with_reported_members
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.loops.intake import merge
from dyntrain.controller.loops.ports import Ports, StoredMembership
from pydantic import ValidationError

log = logging.getLogger("dyntrain.rebuild")


def membership_of(ports: Ports, cluster: str, *, surveyed: bool) -> StoredMembership | None:
    """The cluster's membership, or None if the membership is lost and cannot be rebuilt yet. `surveyed` says that the
    facts of a complete resync have just been written.
    """
    stored_membership = ports.clusters.get(cluster)
    if stored_membership.version:
        return stored_membership
    target_json = ports.parameters.target(cluster)
    if target_json is None:
        return stored_membership  # a new cluster
    if not surveyed:
        log.warning("the table has lost this cluster: waiting for a complete resync", extra={"cluster": cluster})
        return None
    return _rebuild(ports, cluster, _parse_target(cluster, target_json), stored_membership)


def awaits_job(membership: Membership, job_facts: JobFacts | None, policy: ClusterPolicy, now: float) -> bool:
    """Whether the membership was rebuilt and still waits for a report of the cluster's coordinator."""
    if membership.rebuilt_at is None or membership.finished or job_facts is not None:
        return False
    return now - membership.rebuilt_at <= policy.takeover_seconds


def take_members(
    ports: Ports, rules: Rules, stored: StoredMembership, job_facts: JobFacts | None, nodes: Iterable[NodeFacts]
) -> None:
    """Rebuild the list of members from the job's report and the nodes, because the published target only pointed to a
    list in the lost table. If another run writes the membership first, this run leaves the work to the other run.
    """
    cluster = rules.policy.cluster
    now = ports.clock()
    membership = with_reported_members(stored.membership, job_facts, _wanted_instances(nodes, rules, now))
    _record_as_prepared(ports, cluster, membership.members, now)
    with suppress(Conflict):
        ports.clusters.put(cluster, replace(stored, membership=membership))


def _wanted_instances(nodes: Iterable[NodeFacts], rules: Rules, now: float) -> list[str]:
    """The instances that users want in the cluster, base nodes first."""
    node_views = [view(facts, rules, now) for facts in nodes if not facts.terminated]
    base_instances = [node_view.instance for node_view in node_views if node_view.base and node_view.owned]
    elastic_instances = [node_view.instance for node_view in node_views if node_view.elastic and not node_view.base]
    return [*base_instances, *elastic_instances]


def _parse_target(cluster: str, text: str) -> Target:
    try:
        return Target.model_validate_json(text)
    except ValidationError as error:
        raise GiveUp(
            f"the table has lost {cluster}, and its parameter `target` is invalid ({error.error_count()} problems): "
            "restore an earlier version (`aws ssm get-parameter-history`), or delete it to start over"
        ) from error


def _rebuild(ports: Ports, cluster: str, target: Target, stored: StoredMembership) -> StoredMembership:
    now = ports.clock()
    membership = rebuilt_membership(target, ports.nodes.of_cluster(cluster), now)
    _record_as_prepared(
        ports, cluster, membership.members, now
    )  # before the membership: writing these facts twice is harmless, losing them is not
    rebuilt_item = replace(stored, membership=membership, published=membership.revision)
    try:
        ports.clusters.put(cluster, rebuilt_item)
    except Conflict as error:
        raise RetryLater(f"rebuilding {cluster} failed, because another run is rebuilding it") from error
    trail_entry = Rebuilt(
        revision=membership.revision,
        members=" ".join(membership.members),
        detail="the table was empty: taken over from the published target",
    )
    ports.clusters.record(cluster, now, [trail_entry])
    log.error("rebuilt", extra={"cluster": cluster, **trail_entry.fields()})
    return replace(rebuilt_item, version=stored.version + 1)


def _record_as_prepared(ports: Ports, cluster: str, members: Iterable[str], now: float) -> None:
    """Record in the table that the members are prepared nodes. The record has the attempt number 0, so that any report
    of the node itself overrides the record.
    """
    preparation = Preparation(attempt=0, at=now, outcome="prepared", reason="the published target listed this node")
    for instance_id in members:
        prepared_facts = NodeFacts(
            instance=instance_id, named=ClusterStatement(at=0.0, cluster=cluster), preparation=preparation
        )
        merge(ports, prepared_facts, wake=False)
