"""Inputs of the reserved pool's arithmetic: reservations, running instances, pools and their claims; JSON for audit and
command line.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LINUX = "Linux/UNIX"
_NAMED_UNITS = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
_METAL_UNITS = {  # bare metal counts as the largest virtual size of its family, unless its name says which
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
    """Normalised units of a size; None for a size without, which counts by its exact type only.

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
    """The platform's plain name: `Linux/UNIX (Amazon VPC)` and `Linux/UNIX` are the same."""
    return text.removesuffix(" (Amazon VPC)").strip() or LINUX


class InventoryItem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Reserved(InventoryItem):
    """A Reserved Instance purchase; `zone` None: regional. `end` in seconds since the epoch."""

    id: str
    instance_type: str
    count: int = Field(ge=0)
    zone: str | None = None
    platform: str = LINUX
    tenancy: str = "default"
    state: str = "active"
    end: float


class Capacity(InventoryItem):
    """An on-demand capacity reservation or Capacity Block. `targeted`: only instances that name it run in it. `end`
    None: until cancelled.
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
            raise ValueError(f"{self.id}: {self.available} available of {self.total}")
        return self


class Usage(InventoryItem):
    """`count` instances that are alike. `pool`: the cluster whose pool holds them; None: other demand."""

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
        """Whether it uses up a reservation: Spot never does, nor do stopped or ending instances."""
        return self.state in ("pending", "running") and self.lifecycle == "on-demand" and self.tenancy != "host"


class Proposal(InventoryItem):
    """How many instances a cluster's pool should have had, and when that was first read."""

    at: float
    proposal: int


class Claim(InventoryItem):
    """What a cluster has claimed of the reservations, launched or not; free for others after `expires`."""

    count: int = Field(ge=0)
    instance_type: str
    zone: str | None = None
    platform: str = LINUX
    tenancy: str = "default"
    capacity_reservations: tuple[str, ...] = ()
    since: float
    expires: float
    readings: tuple[Proposal, ...] = ()
    held: tuple[str, ...] = Field((), description="listed instances that the pool has started and not yet given back")
    releasing: tuple[str, ...] = Field((), description="of `held`, those that are on their way out")


class Pool(InventoryItem):
    """A pool's state: the policy's numbers, `current` instances requested, and the limits of the group or list they
    come from. `frozen`: why its size must not change now. `growable` False: it may only shrink. `opens`: when the
    cluster's next leave window lets it shrink. `closed`: why it cannot use any, whatever its limits.
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
    """One complete reading. `problem`: why it is incomplete; then nothing may be decided on it."""

    at: float
    end_margin_seconds: float = Field(3600.0, ge=0)
    reserved: tuple[Reserved, ...] = ()
    capacity: tuple[Capacity, ...] = ()
    usage: tuple[Usage, ...] = ()
    pools: tuple[Pool, ...]
    claims: dict[str, Claim] = {}
    problem: str = ""
