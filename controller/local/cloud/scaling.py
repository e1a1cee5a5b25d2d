"""A group's scaling decisions: how many to launch, and which instances to end. Pure."""

from __future__ import annotations

from dataclasses import dataclass

COMING_OR_IN_SERVICE = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})


@dataclass(frozen=True)
class MemberView:
    """A member for these decisions. `order` grows with the time of launch. `replaced`: AWS recommended to rebalance it,
    and the group does.
    """

    instance_id: str
    lifecycle_state: str
    protected: bool
    order: int
    replaced: bool = False


def missing(members: list[MemberView], desired: int) -> int:
    return max(0, desired - len(_counted(members)))


def surplus(members: list[MemberView], desired: int) -> list[str]:
    """Instances to terminate: those not yet in service first, then the newest.

    AWS's default policy weighs zones, the launch template's age and the billing hour; with one zone and one template
    nothing is left of it but the last, which per-second billing made meaningless. Protection starts at InService.
    """
    counted = _counted(members)
    free = [member for member in counted if not (member.protected and member.lifecycle_state == "InService")]
    free.sort(key=lambda member: (member.lifecycle_state == "InService", -member.order))
    return [member.instance_id for member in free[: max(0, len(counted) - desired)]]


def succeeded(members: list[MemberView], desired: int) -> list[str]:
    """Instances whose replacements serve, so that they can be terminated: capacity rebalancing, as
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-capacity-rebalancing.html describes it.
    """
    if sum(member.lifecycle_state == "InService" for member in _counted(members)) < desired:
        return []
    return [it.instance_id for it in members if it.replaced and it.lifecycle_state in COMING_OR_IN_SERVICE]


def _counted(members: list[MemberView]) -> list[MemberView]:
    return [it for it in members if it.lifecycle_state in COMING_OR_IN_SERVICE and not it.replaced]


def relaunch_delay(failures: int, first: float) -> float:
    """How long to wait before the launch that follows `failures` failed ones in a row: doubles, up to a minute."""
    return 0.0 if failures == 0 else min(60.0, first * 2.0 ** (failures - 1))
