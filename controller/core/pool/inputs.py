"""The inputs from which the sizes of the reserved pools are computed: reservations, running instances, pools and their
claims. The audit trail and the command line show these inputs as JSON.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LINUX = "Linux/UNIX"  # a platform, as AWS writes it
_UNITS_BY_SIZE_NAME = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
_METAL_UNITS_BY_FAMILY = {  # the size `metal` counts as the family's largest virtual size
    "a1": 32.0, "c5": 192.0, "c5d": 192.0, "c5n": 144.0, "c6a": 384.0, "c6g": 128.0, "c6gd": 128.0, "c6i": 256.0,
    "c6id": 256.0, "c6in": 256.0, "c7g": 128.0, "c7gd": 128.0, "g4dn": 192.0, "g5g": 128.0, "i3": 128.0, "i3en": 192.0,
    "i4i": 256.0, "m5": 192.0, "m5d": 192.0, "m5dn": 192.0, "m5n": 192.0, "m5zn": 96.0, "m6a": 384.0, "m6g": 128.0,
    "m6gd": 128.0, "m6i": 256.0, "m6id": 256.0, "m6idn": 256.0, "m6in": 256.0, "m7g": 128.0, "m7gd": 128.0,
    "r5": 192.0, "r5b": 192.0, "r5d": 192.0, "r5dn": 192.0, "r5n": 192.0, "r6a": 384.0, "r6g": 128.0, "r6gd": 128.0,
    "r6i": 256.0, "r6id": 256.0, "r6idn": 256.0, "r6in": 256.0, "r7g": 128.0, "r7gd": 128.0, "x2gd": 128.0,
    "x2idn": 256.0, "x2iedn": 256.0, "x2iezn": 96.0, "z1d": 96.0,
}  # fmt: skip
INFLEXIBLE_FAMILIES = frozenset({"g4ad", "g4dn", "g5", "g5g", "inf1"})  # reservations match only the exact type


def family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


def units(instance_type: str) -> float | None:
    """The number of AWS's normalised units for the size of an instance type. Returns None for a size without normalised
    units, for which reservations match only the exact instance type.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/apply_ri.html
    """
    family_name, _, size = instance_type.partition(".")
    if size in _UNITS_BY_SIZE_NAME:
        return _UNITS_BY_SIZE_NAME[size]
    size_match = re.fullmatch(r"(?:metal-)?(\d+)xl(arge)?", size)
    if size_match and bool(size_match[2]) != size.startswith("metal-"):
        return 8.0 * int(size_match[1])
    return _METAL_UNITS_BY_FAMILY.get(family_name) if size == "metal" else None


def platform_of(text: str) -> str:
    """The platform's name without the addition for VPCs: `Linux/UNIX (Amazon VPC)` becomes `Linux/UNIX`."""
    return text.removesuffix(" (Amazon VPC)").strip() or LINUX


class InventoryItem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Reserved(InventoryItem):
    """A purchase of Reserved Instances. If `zone` is None, the purchase is for the whole region. `end` is in seconds
    since the epoch.
    """

    id: str  # of the purchase
    instance_type: str
    count: int = Field(ge=0)  # number of reserved instances
    zone: str | None = None  # None: the whole region
    platform: str = LINUX
    tenancy: str = "default"  # default or dedicated
    state: str = "active"  # the state that AWS shows
    end: float  # seconds since the epoch


class Capacity(InventoryItem):
    """An on-demand capacity reservation or a Capacity Block. If `targeted` is true, only instances that name the
    reservation can use the reservation. If `end` is None, the reservation lasts until somebody cancels it.
    """

    id: str  # of the reservation
    instance_type: str
    zone: str
    total: int = Field(ge=0)  # slots for instances
    available: int = Field(ge=0)  # slots without an instance
    platform: str = LINUX
    tenancy: str = "default"  # default or dedicated
    state: str = "active"  # the state that AWS shows
    targeted: bool = False  # only for instances that name it
    block: bool = False  # a Capacity Block
    end: float | None = None  # None: until it is cancelled

    @model_validator(mode="after")
    def _check_available_slots(self) -> Capacity:
        if self.available > self.total:
            raise ValueError(
                f"capacity reservation {self.id} has more available slots ({self.available}) than slots ({self.total})"
            )
        return self


class Usage(InventoryItem):
    """A number of running or stopped instances with the same properties. `pool` is the cluster whose pool holds the
    instances, or None if no pool holds them.
    """

    instance_type: str
    count: int = Field(1, ge=0)  # number of instances
    zone: str
    platform: str = LINUX
    tenancy: str = "default"  # default, dedicated or host
    state: str = "running"  # of the instances in EC2
    lifecycle: Literal["on-demand", "spot", "scheduled", "capacity-block"] = "on-demand"
    capacity_reservation: str | None = None  # the reservation in which they run
    pool: str | None = None  # the cluster whose pool holds them

    @property
    def running(self) -> bool:
        """Whether the instances use up a reservation. Instances that are stopped, are being terminated or were bought
        as Spot do not use up a reservation.
        """
        return self.state in ("pending", "running") and self.lifecycle == "on-demand" and self.tenancy != "host"


class Proposal(InventoryItem):
    """The size that was proposed for a cluster's pool after one reading of the inputs, and the time of this reading."""

    at: float  # time of the reading
    proposal: int  # number of instances


class Claim(InventoryItem):
    """A cluster's claim on a number of reserved instances of one kind, whether or not the cluster has launched these
    instances. After the time `expires`, other clusters may use the claimed reservations.
    """

    count: int = Field(ge=0)  # number of instances
    instance_type: str
    zone: str | None = None  # None: any zone
    platform: str = LINUX
    tenancy: str = "default"  # default or dedicated
    capacity_reservations: tuple[str, ...] = ()  # ids of targeted reservations
    since: float  # when the cluster first claimed them
    expires: float  # when the claim ends unless renewed
    readings: tuple[Proposal, ...] = ()  # the latest proposals
    held: tuple[str, ...] = Field((), description="listed instances that the pool has started and not given back")
    releasing: tuple[str, ...] = Field((), description="held instances that are being released")


class Pool(InventoryItem):
    """The state of a cluster's pool. `current` is the number of instances that is requested for the pool now. `least`
    and `most` are the smallest and the largest size that the Auto Scaling group or the list of instances allows.

    If the pool's size must not change now, `frozen` says why. If `growable` is False, the pool must not grow now.
    `opens` is the time of the cluster's next leave window, before which the pool does not shrink. If the cluster cannot
    use any instance now, `closed` says why.
    """

    cluster: str
    instance_type: str
    zone: str | None = None  # None: any zone
    platform: str = LINUX
    tenancy: str = "default"  # default or dedicated
    capacity_reservations: tuple[str, ...] = ()  # ids of targeted reservations
    min: int = 0  # smallest size, by the policy
    max: int = 8  # largest size, by the policy
    base: int = 0  # instances wanted whether reserved or not
    headroom: int = 0  # idle instances left for other users
    readings: int = 2  # equal readings before a change
    reading_seconds: float = 60.0  # closer readings count as one
    lease_seconds: float = 900.0  # how long a claim lasts
    priority: int = 0  # pools of higher priority come first
    dry_run: bool = False  # only record the decisions
    current: int = Field(0, ge=0)  # requested number of instances
    least: int = Field(0, ge=0)  # smallest size of the group or list
    most: int | None = None  # largest size of the group or list; None: no limit
    growable: bool = True  # the pool may grow now
    frozen: str = ""  # why the size must not change now
    opens: str = ""  # when the next leave window opens
    closed: str = ""  # why the cluster cannot use any instance


class Inputs(InventoryItem):
    """One reading of all inputs of the pools' arithmetic. If the reading is incomplete, `problem` says why, and no pool
    is changed.
    """

    at: float  # time of the reading
    end_margin_seconds: float = Field(3600.0, ge=0)  # an earlier end counts as gone
    reserved: tuple[Reserved, ...] = ()  # purchases of Reserved Instances
    capacity: tuple[Capacity, ...] = ()  # capacity reservations and Capacity Blocks
    usage: tuple[Usage, ...] = ()  # instances in the account
    pools: tuple[Pool, ...]  # of all clusters
    claims: dict[str, Claim] = {}  # by cluster
    problem: str = ""  # why the reading is incomplete
