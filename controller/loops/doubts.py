"""Holds back a reading that would remove over half of a cluster's members, until a second reading confirms it.

A wrong reading (a describe call without tags, a wrong account) then costs a period, not the job.
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

REMEMBERED_PERIODS = 3.5  # an older first reading does not count


@dataclass(frozen=True)
class Doubts:
    """Losses that wait for a second reading. `instances` are not written now; `notes` says which nodes were lost."""

    instances: frozenset[str]
    notes: Mapping[str, bool]
    clusters: tuple[str, ...]


def doubtful_losses(
    ports: Ports,
    policies: Mapping[str, ClusterPolicy],
    stored: Mapping[str, StoredNode],
    news: Sequence[tuple[NodeFacts, StoredNode | None]],
    elastic: ElasticTag,
    now: float,
) -> Doubts:
    losses: dict[str, list[str]] = {}
    for reading, known in news:
        named = known.facts.named if known is not None else None
        if known is None or named is None or named.cluster not in policies:
            continue
        rules = Rules(policies[named.cluster], elastic)
        before = view(known.facts, rules, now)
        if before.closed is None and before.wanted and not view(known.facts.join(reading), rules, now).wanted:
            losses.setdefault(named.cluster, []).append(reading.instance)
    held_instances: set[str] = set()
    notes = {
        instance: False
        for instance, node in stored.items()
        if (doubt := node.facts.acks.doubt) is not None and doubt.lost
    }
    clusters = []
    for cluster, lost in sorted(losses.items()):
        members = set(ports.clusters.get(cluster).membership.members)
        lost_members = members.intersection(lost)
        if len(lost_members) * 2 <= len(members):
            continue
        first_losses = {
            instance for instance in lost_members if not _was_lost_before(stored[instance], policies[cluster], now)
        }
        if not first_losses:
            continue
        held_instances |= lost_members
        notes.update(dict.fromkeys(lost_members, True))
        clusters.append(cluster)
        log.error(
            "most members would be lost: waiting for a second reading",
            extra={"cluster": cluster, "lost": len(lost_members), "members": len(members)},
        )
        ports.metrics.count(RESYNC_HELD, cluster)
    return Doubts(frozenset(held_instances), notes, tuple(clusters))


def _was_lost_before(node: StoredNode, policy: ClusterPolicy, now: float) -> bool:
    """Whether the previous reading lost the node as well."""
    doubt = node.facts.acks.doubt
    return doubt is not None and doubt.lost and 0 < now - doubt.at <= REMEMBERED_PERIODS * policy.resync_seconds
