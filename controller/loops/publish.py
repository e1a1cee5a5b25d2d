"""Publishes a cluster's target in the SSM parameter that the cluster's coordinator reads, and checks the parameter for
conflicts.

AWS's Parameter Store has no compare-and-set. Before writing the parameter, a run writes the membership into the
cluster's table item by compare-and-set. After writing the parameter, the run reads the table item again. If the table
item has changed, the run writes the parameter again. Reading the table item again ensures that the run that writes the
parameter last leaves the newest revision in the parameter.

If the parameter and the table have the same revision with different content, another controller writes the parameter,
or the table was restored from a backup. A conflicting parameter is not overwritten, and an alarm is raised. The next
tick (periodic check) resolves the conflict by a revision above the parameter's revision.
"""

from __future__ import annotations

from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, DisputedTarget, RetryLater
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.decisions.alarms import TARGET_DISPUTED
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import Ports, StoredMembership
from pydantic import ValidationError

ATTEMPTS = 5  # writes of the parameter before a run gives up


def publish(ports: Ports, cluster: str, revision: int) -> Membership | None:
    """Publish the cluster's target with the revision `revision` or a later revision. Returns the published membership,
    or None if another run has published a later revision.

    Raises DisputedTarget if another controller wrote the parameter. Raises RetryLater if other runs keep changing the
    cluster's table item. Also raises the errors of the ports (the interfaces to AWS).
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
    except DisputedTarget:
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
    """The revision in the target parameter, or -1 if the parameter contains no valid target. Raises DisputedTarget if
    the parameter has the same revision as `membership` but different content.
    """
    published_target = parameter_target(ports, cluster)
    if published_target is None:
        return -1
    dispute = dispute_message(cluster, published_target, membership)
    if dispute:
        raise DisputedTarget(dispute)
    return published_target.revision


def dispute_message(cluster: str, published: Target, membership: Membership) -> str:
    """Return an error message if the target `published` has the same revision as the membership but different content,
    and else "". Pure.
    """
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
