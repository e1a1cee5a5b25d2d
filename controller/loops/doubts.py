"""A breaker: a reading that would remove more than half of a cluster's members waits until a second reading confirms
it.

A mistake of ours or of AWS's (a describe call that shows no tags, a wrong account) then costs a period, not the job.
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
    """Losses that wait. `instances` are not written this time; `notes` is what to remember of each node: whether it was
    lost.
    """

    instances: frozenset[str]
    notes: Mapping[str, bool]
    clusters: tuple[str, ...]


def doubted(
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
    held: set[str] = set()
    notes = {
        instance: False
        for instance, node in stored.items()
        if (doubt := node.facts.acks.doubt) is not None and doubt.lost
    }
    clusters = []
    for cluster, lost in sorted(losses.items()):
        members = set(ports.clusters.get(cluster).membership.members)
        gone = members.intersection(lost)
        if len(gone) * 2 <= len(members):
            continue
        fresh = {instance for instance in gone if not _read_before(stored[instance], policies[cluster], now)}
        if not fresh:
            continue
        held |= gone
        notes.update(dict.fromkeys(gone, True))
        clusters.append(cluster)
        log.error(
            "most members would be lost: waiting for a second reading",
            extra={"cluster": cluster, "lost": len(gone), "members": len(members)},
        )
        ports.metrics.count(RESYNC_HELD, cluster)
    return Doubts(frozenset(held), notes, tuple(clusters))


def _read_before(node: StoredNode, policy: ClusterPolicy, now: float) -> bool:
    """Whether the previous reading lost the node as well."""
    doubt = node.facts.acks.doubt
    return doubt is not None and doubt.lost and 0 < now - doubt.at <= REMEMBERED_PERIODS * policy.resync_seconds
