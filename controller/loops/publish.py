"""Publishes a cluster's target in the parameter that the coordinator reads, and checks the parameter.

Parameter Store has no compare-and-set. So a run first writes the membership into the cluster's item by compare-and-set.
After writing the parameter, the run reads the item again. If the item has changed, the run writes the parameter again.
So the last writer always leaves the newest revision.

If the parameter has the table's revision with other content, another controller writes it, or the table is from a
backup. Then the parameter is not overwritten, an alarm is raised, and the next tick continues with a higher revision.
"""

from __future__ import annotations

from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, Disputed, RetryLater
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.decisions.alarms import TARGET_DISPUTED
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import Ports, StoredMembership
from pydantic import ValidationError

ATTEMPTS = 5


def publish(ports: Ports, cluster: str, revision: int) -> Membership | None:
    """Publish at least `revision`; returns the published membership, None if another run has published a later one.

    Raises Disputed, RetryLater when other runs keep changing the item, and the errors of the ports.
    """
    stored = ports.clusters.get(cluster)
    if stored.published > revision:
        return None
    if stored.membership.revision < revision:
        raise RetryLater(f"the membership of {cluster} was lost before it was published; the next tick rebuilds it")
    try:
        return _put(ports, cluster, stored)
    except Disputed:
        ports.metrics.count(TARGET_DISPUTED, cluster)
        raise


def _put(ports: Ports, cluster: str, stored: StoredMembership) -> Membership:
    published_revision(ports, cluster, stored.membership)
    for _ in range(ATTEMPTS):
        ports.parameters.put_target(cluster, stored.membership.target, ports.clusters.pointer(cluster))
        present_revision = published_revision(ports, cluster, stored.membership)
        latest = ports.clusters.get(cluster)
        if present_revision >= stored.membership.revision == latest.membership.revision:
            try:
                ports.clusters.put(cluster, replace(latest, published=latest.membership.revision))
                return latest.membership
            except Conflict:
                latest = ports.clusters.get(cluster)
        stored = latest
    raise RetryLater(
        f"the target of {cluster} was written by others {ATTEMPTS} times in a row; the next pass publishes it"
    )


def published_revision(ports: Ports, cluster: str, membership: Membership) -> int:
    """The parameter's revision, -1 without one. Raises Disputed for the membership's revision with other content."""
    published = parameter_target(ports, cluster)
    if published is None:
        return -1
    problem = dispute_message(cluster, published, membership)
    if problem:
        raise Disputed(problem)
    return published.revision


def dispute_message(cluster: str, published: Target, membership: Membership) -> str:
    """Return a message if `published` has the membership's revision with other content, else "". Pure."""
    if not published.contradicts(membership.target):
        return ""
    writer = f"stage {published.stage}" if published.stage else "an unnamed stage"
    return (
        f"two targets of {cluster} have revision {published.revision}: {published.count} members in the parameter, "
        f"by {writer}, {len(membership.members)} in the table; name its stage in its policy, and edit no target by hand"
    )


def parameter_target(ports: Ports, cluster: str) -> Target | None:
    """The target in the parameter; None when there is none or it cannot be parsed."""
    text = ports.parameters.target(cluster)
    try:
        return Target.model_validate_json(text) if text is not None else None
    except ValidationError:
        return None
