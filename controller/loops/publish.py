"""Publishes a cluster's target in the parameter that the coordinator reads, and checks the parameter.

AWS's Parameter Store has no compare-and-set. So a run first writes the membership into the cluster's table item by
compare-and-set. After writing the parameter, the run reads the item again. If the item has changed, the run writes the
parameter again. So the run that writes the parameter last always leaves the newest revision.

If the parameter contains the table's revision with different content, another controller writes the parameter, or the
table is from a backup. A parameter with such a conflict is not overwritten, an alarm is raised, and the next tick
continues with a higher revision.
"""

from __future__ import annotations

from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, Disputed, RetryLater
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.decisions.alarms import TARGET_DISPUTED
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import Ports, StoredMembership
from pydantic import ValidationError

ATTEMPTS = 5  # writes of the parameter before a run gives up


def publish(ports: Ports, cluster: str, revision: int) -> Membership | None:
    """Publish the cluster's target with the revision `revision` or a later revision. Returns the published membership,
    or None if another run has published a later revision.

    Raises Disputed if another controller wrote the parameter, RetryLater if other runs keep changing the item, and the
    errors of the ports.
    """
    stored_membership = ports.clusters.get(cluster)
    if stored_membership.published > revision:
        return None
    if stored_membership.membership.revision < revision:
        raise RetryLater(
            f"publishing failed: the membership of {cluster} was lost from the table; the next tick rebuilds it"
        )
    try:
        return _write_parameter(ports, cluster, stored_membership)
    except Disputed:
        ports.metrics.count(TARGET_DISPUTED, cluster)
        raise


def _write_parameter(ports: Ports, cluster: str, stored_membership: StoredMembership) -> Membership:
    published_revision(ports, cluster, stored_membership.membership)
    for _ in range(ATTEMPTS):
        ports.parameters.put_target(
            cluster, stored_membership.membership.target, ports.clusters.members_item_key(cluster)
        )
        present_revision = published_revision(ports, cluster, stored_membership.membership)
        latest_membership = ports.clusters.get(cluster)
        if present_revision >= stored_membership.membership.revision == latest_membership.membership.revision:
            try:
                ports.clusters.put(cluster, replace(latest_membership, published=latest_membership.membership.revision))
                return latest_membership.membership
            except Conflict:
                latest_membership = ports.clusters.get(cluster)
        stored_membership = latest_membership
    raise RetryLater(
        f"publishing the target of {cluster} failed: other runs wrote it {ATTEMPTS} times in a row; "
        "the next pass publishes it"
    )


def published_revision(ports: Ports, cluster: str, membership: Membership) -> int:
    """The revision in the target parameter, or -1 without a valid target. Raises Disputed if the parameter contains the
    membership's revision with different content.
    """
    published_target = parameter_target(ports, cluster)
    if published_target is None:
        return -1
    dispute = dispute_message(cluster, published_target, membership)
    if dispute:
        raise Disputed(dispute)
    return published_target.revision


def dispute_message(cluster: str, published: Target, membership: Membership) -> str:
    """Return a message if `published` has the membership's revision but different content, else "". Pure."""
    if not published.contradicts(membership.target):
        return ""
    writing_stage = f"stage {published.stage}" if published.stage else "an unnamed stage"
    return (
        f"two targets of {cluster} have revision {published.revision}: {published.count} members in the parameter, "
        f"by {writing_stage}, {len(membership.members)} in the table; name its stage in its policy, and edit no "
        "target by hand"
    )


def parameter_target(ports: Ports, cluster: str) -> Target | None:
    """The target in the cluster's parameter, or None if there is no parameter or its text cannot be parsed."""
    target_json = ports.parameters.target(cluster)
    try:
        return Target.model_validate_json(target_json) if target_json is not None else None
    except ValidationError:
        return None
