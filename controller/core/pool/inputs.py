"""Inputs of the reserved pool's arithmetic: reservations, running instances, pools and their claims. The audit trail
and the command line show the inputs as JSON.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LINUX = "Linux/UNIX"
_NAMED_UNITS = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
_METAL_UNITS = {  # the size `metal` counts as the family's largest virtual size
    "a1": 32.0, "c5": 192.0, "c5d": 192.0, "c5n": 144.0, "c6a": 384.0, "c6g": 128.0, "c6gd": 128.0, "c6i": 256.0,
    "c6id": 256.0, "c6in": 256.0, "c7g": 128.0, "c7gd": 128.0, "g4dn": 192.0, "g5g": 128.0, "i3": 128.0, "i3en": 192.0,
    "i4i": 256.0, "m5": 192.0, "m5d": 192.0, "m5dn": 192.0, "m5n": 192.0, "m5zn": 96.0, "m6a": 384.0, "m6g": 128.0,
    "m6gd": 128.0, "m6i": 256.0, "m6id": 256.0, "m6idn": 256.0, "m6in": 256.0, "m7g": 128.0, "m7gd": 128.0,
    "r5": 192.0, "r5b": 192.0, "r5d": 192.0, "r5dn": 192.0, "r5n": 192.0, "r6a": 384.0, "r6g": 128.0, "r6gd": 128.0,
    "r6i": 256.0, "r6id": 256.0, "r6idn": 256.0, "r6in": 256.0, "r7g": 128.0, "r7gd": 128.0, "x2gd": 128.0,
    "x2idn": 256.0, "x2iedn": 256.0, "x2iezn": 96.0, "z1d": 96.0,
}  # fmt: skip
INFLEXIBLE = frozenset({"g4ad", "g4dn", "g5", "g5g", "inf1"})


def family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


def units(instance_type: str) -> float | None:
    """Normalised units of an instance size; None for a size without units, which counts by its exact type only.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/apply_ri.html
    """
    name, _, size = instance_type.partition(".")
    if size in _NAMED_UNITS:
        return _NAMED_UNITS[size]
    size_match = re.fullmatch(r"(?:metal-)?(\d+)xl(arge)?", size)
    if size_match and bool(size_match[2]) != size.startswith("metal-"):
        return 8.0 * int(size_match[1])
    return _METAL_UNITS.get(name) if size == "metal" else None


def platform_of(text: str) -> str:
    """The platform's normalised name: `Linux/UNIX (Amazon VPC)` becomes `Linux/UNIX`."""
    return text.removesuffix(" (Amazon VPC)").strip() or LINUX


class InventoryItem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Reserved(InventoryItem):
    """A purchase of Reserved Instances. With `zone` None, the purchase is regional. `end` is in seconds since the
    epoch.
    """

    id: str
    instance_type: str
    count: int = Field(ge=0)
    zone: str | None = None
    platform: str = LINUX
    tenancy: str = "default"
    state: str = "active"
    end: float


class Capacity(InventoryItem):
    """An on-demand capacity reservation or a Capacity Block. With `targeted`, the reservation accepts only instances
    that name it. With `end` None, the reservation lasts until it is cancelled.
    """

    id: str
    instance_type: str
    zone: str
    total: int = Field(ge=0)
    available: int = Field(ge=0)
    platform: str = LINUX
    tenancy: str = "default"
    state: str = "active"
    targeted: bool = False
    block: bool = False
    end: float | None = None

    @model_validator(mode="after")
    def _available_within_total(self) -> Capacity:
        if self.available > self.total:
            raise ValueError(f"{self.id}: available ({self.available}) is above total ({self.total})")
        return self


class Usage(InventoryItem):
    """A number of instances that are alike. `pool` is the cluster whose pool holds the instances; None: other
    demand.
    """

    instance_type: str
    count: int = Field(1, ge=0)
    zone: str
    platform: str = LINUX
    tenancy: str = "default"
    state: str = "running"
    lifecycle: Literal["on-demand", "spot", "scheduled", "capacity-block"] = "on-demand"
    capacity_reservation: str | None = None
    pool: str | None = None

    @property
    def running(self) -> bool:
        """Whether the instances use up a reservation. Spot, stopped and terminating instances do not."""
        return self.state in ("pending", "running") and self.lifecycle == "on-demand" and self.tenancy != "host"


class Proposal(InventoryItem):
    """A size that a cluster's pool should have had, and the time when this size was first read."""

    at: float
    proposal: int


class Claim(InventoryItem):
    """The reservations that a cluster has claimed, with or without launched instances. After `expires` other clusters
    may use these reservations.
    """

    count: int = Field(ge=0)
    instance_type: str
    zone: str | None = None
    platform: str = LINUX
    tenancy: str = "default"
    capacity_reservations: tuple[str, ...] = ()
    since: float
    expires: float
    readings: tuple[Proposal, ...] = ()
    held: tuple[str, ...] = Field((), description="listed instances that the pool has started and not given back")
    releasing: tuple[str, ...] = Field((), description="held instances that are being released")


class Pool(InventoryItem):
    """The state of a cluster's pool. `current` is the requested number of instances; `least` and `most` are the limits
    of the group or list of instances.

    `frozen` says why the size must not change now. With `growable` False the pool may only shrink. `opens` is the
    cluster's next leave window, before which the pool does not shrink. `closed` says why the cluster cannot use any
    instance.
    """

    cluster: str
    instance_type: str
    zone: str | None = None
    platform: str = LINUX
    tenancy: str = "default"
    capacity_reservations: tuple[str, ...] = ()
    min: int = 0
    max: int = 8
    base: int = 0
    headroom: int = 0
    readings: int = 2
    reading_seconds: float = 60.0
    lease_seconds: float = 900.0
    priority: int = 0
    dry_run: bool = False
    current: int = Field(0, ge=0)
    least: int = Field(0, ge=0)
    most: int | None = None
    growable: bool = True
    frozen: str = ""
    opens: str = ""
    closed: str = ""


class Inputs(InventoryItem):
    """One reading of all inputs. `problem` says why the reading is incomplete; then nothing may be decided."""

    at: float
    end_margin_seconds: float = Field(3600.0, ge=0)
    reserved: tuple[Reserved, ...] = ()
    capacity: tuple[Capacity, ...] = ()
    usage: tuple[Usage, ...] = ()
    pools: tuple[Pool, ...]
    claims: dict[str, Claim] = {}
    problem: str = ""
