"""Holds back a reading of EC2 that would remove over half of a cluster's members, until a second reading confirms the
loss.

Because of the second reading, a wrong first reading (such as a describe call without tags, or of a wrong account)
delays the controller by one resync period, but does not end the job.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.alarms import RESYNC_HELD
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.loops.ports import Ports, StoredNode

log = logging.getLogger("dyntrain.resync")

FIRST_READING_PERIODS = 3.5  # after so many resync periods, a first reading no longer counts


@dataclass(frozen=True)
class Doubts:
    """Lost cluster members that wait for a second reading of EC2. The newly read facts about `instances` are not
    written to the table before the second reading. `notes` maps each instance to whether this reading lost the
    instance.
    """

    instances: frozenset[str]  # lost members whose facts are held back
    notes: Mapping[str, bool]  # by instance: whether this reading lost it
    clusters: tuple[str, ...]  # the clusters whose losses wait


def doubtful_losses(
    ports: Ports,
    policies: Mapping[str, ClusterPolicy],
    stored: Mapping[str, StoredNode],
    news: Sequence[tuple[NodeFacts, StoredNode | None]],
    elastic: ElasticTag,
    now: float,
) -> Doubts:
    lost_ids_by_cluster: dict[str, list[str]] = {}
    for read_facts, stored_node in news:
        cluster_statement = stored_node.facts.named if stored_node is not None else None
        if stored_node is None or cluster_statement is None or cluster_statement.cluster not in policies:
            continue
        rules = Rules(policies[cluster_statement.cluster], elastic)
        view_before = view(stored_node.facts, rules, now)
        if (
            view_before.closed is None
            and view_before.wanted
            and not view(stored_node.facts.join(read_facts), rules, now).wanted
        ):
            lost_ids_by_cluster.setdefault(cluster_statement.cluster, []).append(read_facts.instance)
    held_instances: set[str] = set()
    lost_flags = {
        instance: False
        for instance, node in stored.items()
        if (doubt := node.facts.acks.doubt) is not None and doubt.lost
    }
    held_clusters = []
    for cluster, lost_instances in sorted(lost_ids_by_cluster.items()):
        members = set(ports.clusters.get(cluster).membership.members)
        lost_members = members.intersection(lost_instances)
        if len(lost_members) * 2 <= len(members):
            continue
        newly_lost_ids = {
            instance for instance in lost_members if not _was_lost_before(stored[instance], policies[cluster], now)
        }
        if not newly_lost_ids:
            continue
        held_instances |= lost_members
        lost_flags.update(dict.fromkeys(lost_members, True))
        held_clusters.append(cluster)
        log.error(
            "most members would be lost: waiting for a second reading",
            extra={"cluster": cluster, "lost": len(lost_members), "members": len(members)},
        )
        ports.metrics.count(RESYNC_HELD, cluster)
    return Doubts(frozenset(held_instances), lost_flags, tuple(held_clusters))


def _was_lost_before(node: StoredNode, policy: ClusterPolicy, now: float) -> bool:
    """Whether an earlier reading, at most FIRST_READING_PERIODS resync periods ago, had already lost the node."""
    doubt = node.facts.acks.doubt
    return doubt is not None and doubt.lost and 0 < now - doubt.at <= FIRST_READING_PERIODS * policy.resync_seconds
