"""The operator's settings for the reserved pool, which lends idle reserved instances to a cluster: the optional field
`pool` of ClusterPolicy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

POOL_TAG = "dyntrain:pool"  # its value is the cluster; IAM lets the pool start and stop only instances with this tag


class PoolPolicy(BaseModel):
    """Settings by which idle reserved instances join the cluster, and leave when somebody else needs the reservations.

    Set either `group` or `instances`. With `group` (default: the cluster's only registered group), only the pool may
    set this Auto Scaling group's desired capacity. With `instances`, the pool starts and tags, or untags and stops, the
    listed instances that also carry the tag `dyntrain:pool`. If `zone` is not set, reservations for a single zone are
    not used, because the zone of the next instance is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    instance_type: str = Field(
        pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$",
        description="type of the instances that the group launches or the policy lists",
    )
    zone: str | None = Field(None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z0-9-]*$")  # None: any zone
    platform: str = Field("Linux/UNIX", min_length=1)  # the operating system, as AWS writes it
    tenancy: Literal["default", "dedicated"] = "default"  # of the instances
    group: str | None = None  # name of an Auto Scaling group
    instances: tuple[Annotated[str, Field(pattern=r"^i-[0-9a-f]{8}([0-9a-f]{9})?$")], ...] = ()  # instance ids
    capacity_reservations: tuple[str, ...] = Field(
        (), description="targeted reservations and Capacity Blocks in which the pool's instances run"
    )
    min: int = Field(0, ge=0)  # smallest size of the pool
    max: int = Field(8, ge=0)  # largest size of the pool
    base: int = Field(  # instances that the pool wants, reserved or not
        0,
        ge=0,
        description=("instances that the pool wants whether reserved or not; the size never falls below `min`"),
    )
    headroom: int = Field(0, ge=0, description="idle reserved instances that the pool leaves for other users")
    readings: int = Field(2, ge=1, le=20, description="how many readings in a row must ask for the same size")
    reading_seconds: float = Field(60.0, ge=0, description="readings closer together than this count as one")
    end_margin_seconds: float = Field(  # shortest remaining time of a usable reservation
        3600.0, ge=0, description="a reservation that ends sooner than this counts as gone"
    )
    lease_seconds: float = Field(  # lifetime of a claim that is not renewed
        900.0, gt=0, description="a claim that is not renewed for so long is free for other clusters"
    )
    priority: int = Field(  # clusters of higher priority are served first
        0, description="clusters of higher priority are served first; at equal priority, the earlier claim"
    )
    dry_run: bool = Field(True, description="only record the decisions, without acting on them")

    @field_validator("max")
    @classmethod
    def _check_max(cls, value: int, info: ValidationInfo) -> int:
        pool_min = info.data.get("min", 0)
        if value < pool_min:
            raise ValueError(f"the pool's max must not be below its min ({pool_min})")
        return value

    @field_validator("base")
    @classmethod
    def _check_base(cls, value: int, info: ValidationInfo) -> int:
        pool_max = info.data.get("max", value)
        if value > pool_max:
            raise ValueError(f"the pool's base must not be above its max ({pool_max})")
        return value

    @field_validator("instances")
    @classmethod
    def _check_instances(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("group") is not None:
            raise ValueError("a pool must not have both a group and instances")
        if len(set(value)) != len(value):
            raise ValueError("an instance of the pool is listed twice")
        return value

    def check_cluster(self, groups: Collection[str], *, waits: bool) -> None:
        """Raise ValueError if these settings are wrong for a cluster with these Auto Scaling groups. `waits` says that
        the cluster's nodes wait for leave windows.
        """
        if not self.instances and (self.group not in groups if self.group is not None else len(groups) != 1):
            raise ValueError(
                f"the pool needs a group of the cluster ({', '.join(groups) or 'it has none'}) or a list of instances"
            )
        if waits and self.capacity_reservations:
            raise ValueError(
                "a pool with capacity_reservations cannot wait for leave_windows: AWS takes machines when their "
                "reservation ends"
            )
