"""Puts a cluster's target where the coordinator reads it, and knows whether it is there.

The parameter store has no compare-and-set. So the membership is settled in the cluster's item first; whoever then writes the parameter
looks at the item again afterwards, and writes once more if it has moved on: the last writer always leaves the newest revision.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from controller.contract import Target
from controller.errors import Conflict, RetryLater
from controller.ports import Ports
from controller.target import Membership

ATTEMPTS = 5


def publish(ports: Ports, cluster: str, revision: int) -> Membership | None:
    """At least `revision`. Returns the membership that was put into the parameter; None when another run has published a later one.

    Raises RetryLater when it does not come to rest, and what the ports raise.
    """
    stored = ports.clusters.get(cluster)
    if stored.published > revision:
        return None
    for _ in range(ATTEMPTS):
        ports.parameters.put_target(cluster, stored.membership.target, ports.clusters.pointer(cluster))
        present = published_revision(ports, cluster, stored.membership)
        latest = ports.clusters.get(cluster)
        if present >= stored.membership.revision == latest.membership.revision:
            try:
                ports.clusters.put(cluster, replace(latest, published=latest.membership.revision))
                return latest.membership
            except Conflict:
                latest = ports.clusters.get(cluster)
        stored = latest
    raise RetryLater(f"the target of {cluster} was written by others {ATTEMPTS} times in a row; the next pass publishes it")


def published_revision(ports: Ports, cluster: str, membership: Membership) -> int:
    """The revision in the parameter; -1 when there is none, or one that is not what the membership of that revision says."""
    found = parameter_target(ports, cluster)
    if found is None or (found.revision == membership.revision and found.digest != membership.target.digest):
        return -1
    return found.revision


def parameter_target(ports: Ports, cluster: str) -> Target | None:
    """What the parameter holds; None when there is none or it is not a target."""
    text = ports.parameters.target(cluster)
    try:
        return Target.model_validate_json(text) if text is not None else None
    except ValidationError:
        return None
