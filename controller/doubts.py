"""A breaker: a reading that would take away more than half of a cluster's members waits until a second reading says the same.

A mistake of ours or of AWS's (a describe call that shows no tags, a wrong account) then costs a period, not the job.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.alarms import RESYNC_HELD
from controller.contract import ClusterPolicy
from controller.facts import NodeFacts
from controller.ports import Ports, StoredNode
from controller.view import Rules, view

log = logging.getLogger("dyntrain.resync")

LOST = "lost"
CLEARED = "cleared"
REMEMBERED_PERIODS = 3.5  # a first reading older than this is none


@dataclass(frozen=True)
class Doubts:
    """`instances` are not to be written this time; `notes` is what to remember of each node."""

    instances: frozenset[str]
    notes: Mapping[str, str]
    clusters: tuple[str, ...]


def doubted(
    ports: Ports,
    policies: Mapping[str, ClusterPolicy],
    stored: Mapping[str, StoredNode],
    news: Sequence[tuple[NodeFacts, StoredNode | None]],
    suffix: str,
    now: float,
) -> Doubts:
    losses: dict[str, list[str]] = {}
    for said, known in news:
        named = known.facts.named if known is not None else None
        if known is None or named is None or named.cluster not in policies:
            continue
        rules = Rules(policies[named.cluster], suffix)
        if view(known.facts, rules, now).wanted and not view(known.facts.join(said), rules, now).wanted:
            losses.setdefault(named.cluster, []).append(said.instance)
    held: set[str] = set()
    notes = {instance: CLEARED for instance, node in stored.items() if (ack := node.facts.acks.get("doubt")) is not None and ack.value == LOST}
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
        notes.update(dict.fromkeys(gone, LOST))
        clusters.append(cluster)
        log.error("most members would be lost: waiting for a second reading", extra={"cluster": cluster, "lost": len(gone), "members": len(members)})
        ports.metrics.count(RESYNC_HELD, cluster)
    return Doubts(frozenset(held), notes, tuple(clusters))


def _read_before(node: StoredNode, policy: ClusterPolicy, now: float) -> bool:
    """Whether the reading before this one lost the node as well."""
    doubt = node.facts.acks.get("doubt")
    return doubt is not None and doubt.value == LOST and 0 < now - doubt.at <= REMEMBERED_PERIODS * policy.resync_seconds
