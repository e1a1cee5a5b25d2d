"""Scaling decisions of an Auto Scaling group: how many instances to launch, and which instances to terminate. All
functions of this module are pure.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_LIFECYCLE_STATES = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})


@dataclass(frozen=True)
class MemberView:
    """The properties of a group member that matter for scaling decisions."""

    instance_id: str
    lifecycle_state: str
    protected: bool  # from termination at scale-in
    order: int  # grows with the launch time
    replaced: bool = False  # whether the group replaces the instance after a rebalance recommendation


def count_missing(members: list[MemberView], desired_capacity: int) -> int:
    return max(0, desired_capacity - len(_counted_members(members)))


def surplus_instances(members: list[MemberView], desired_capacity: int) -> list[str]:
    """The surplus instances, which the group terminates. Instances that are not in service yet are chosen first, then
    the newest instances.

    AWS's default termination policy considers zones, the launch template's age and the billing hour. The criteria of
    AWS's default termination policy make no difference with one zone, one launch template and billing by the second.
    Scale-in protection of a member begins when its state is InService.
    """
    counted_members = _counted_members(members)
    unprotected_members = [
        member for member in counted_members if not (member.protected and member.lifecycle_state == "InService")
    ]
    unprotected_members.sort(key=lambda member: (member.lifecycle_state == "InService", -member.order))
    return [member.instance_id for member in unprotected_members[: max(0, len(counted_members) - desired_capacity)]]


def replaceable_instances(members: list[MemberView], desired_capacity: int) -> list[str]:
    """Instances to terminate after a rebalance recommendation, because their replacements are in service
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-capacity-rebalancing.html).
    """
    if sum(member.lifecycle_state == "InService" for member in _counted_members(members)) < desired_capacity:
        return []
    return [
        member.instance_id
        for member in members
        if member.replaced and member.lifecycle_state in COUNTED_LIFECYCLE_STATES
    ]


def _counted_members(members: list[MemberView]) -> list[MemberView]:
    return [member for member in members if member.lifecycle_state in COUNTED_LIFECYCLE_STATES and not member.replaced]


def relaunch_delay_seconds(failure_count: int, first_delay: float) -> float:
    """Seconds to wait before the launch that follows `failure_count` failed launches in a row. The wait is
    `first_delay` after one failure, doubles with each further failure, and is at most a minute.
    """
    return 0.0 if failure_count == 0 else min(60.0, first_delay * 2.0 ** (failure_count - 1))
