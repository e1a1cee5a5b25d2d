"""Scaling decisions of an Auto Scaling group: how many instances to launch, and which instances to end. Pure
functions.
"""

from __future__ import annotations

from dataclasses import dataclass

COMING_OR_IN_SERVICE = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})


@dataclass(frozen=True)
class MemberView:
    """The properties of a group member that matter for the decisions. `order` grows with the launch time. `replaced`:
    EC2 recommended a rebalance, and the group replaces the instance.
    """

    instance_id: str
    lifecycle_state: str
    protected: bool
    order: int
    replaced: bool = False


def missing_count(members: list[MemberView], desired: int) -> int:
    return max(0, desired - len(_counted(members)))


def surplus(members: list[MemberView], desired: int) -> list[str]:
    """Instances to terminate: first instances that are not in service yet, then the newest.

    AWS's default policy weighs zones, the launch template's age and the billing hour. These criteria do not matter with
    one zone, one template and billing by the second. Scale-in protection starts at InService.
    """
    counted = _counted(members)
    free = [member for member in counted if not (member.protected and member.lifecycle_state == "InService")]
    free.sort(key=lambda member: (member.lifecycle_state == "InService", -member.order))
    return [member.instance_id for member in free[: max(0, len(counted) - desired)]]


def replaceable(members: list[MemberView], desired: int) -> list[str]:
    """Instances to terminate because their replacements are in service, after a rebalance recommendation
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-capacity-rebalancing.html).
    """
    if sum(member.lifecycle_state == "InService" for member in _counted(members)) < desired:
        return []
    return [
        member.instance_id for member in members if member.replaced and member.lifecycle_state in COMING_OR_IN_SERVICE
    ]


def _counted(members: list[MemberView]) -> list[MemberView]:
    return [member for member in members if member.lifecycle_state in COMING_OR_IN_SERVICE and not member.replaced]


def relaunch_delay(failures: int, first: float) -> float:
    """Seconds before the launch that follows `failures` failed launches in a row: `first`, then doubled, up to a
    minute.
    """
    return 0.0 if failures == 0 else min(60.0, first * 2.0 ** (failures - 1))
