"""The operator's limits for the reserved pool, which gives idle reserved instances to clusters: the optional field
`pool` of ClusterPolicy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

POOL_TAG = "dyntrain:pool"  # its value is the cluster; IAM lets the pool start and stop only instances with this tag


class PoolPolicy(BaseModel):
    """Let idle reserved instances join the cluster, and leave when somebody else needs the reservations.

    Set either `group` or `instances`. For `group` (default: the cluster's only registered group) only the pool sets the
    desired capacity. The pool starts and tags, or untags and stops, those `instances` that also carry the tag
    `dyntrain:pool`. Without `zone`, reservations of one zone do not count, because the zone of the next instance is
    unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    instance_type: str = Field(
        pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$",
        description="type of the instances that the group launches or the policy lists",
    )
    zone: str | None = Field(None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z0-9-]*$")
    platform: str = Field("Linux/UNIX", min_length=1)
    tenancy: Literal["default", "dedicated"] = "default"
    group: str | None = None
    instances: tuple[Annotated[str, Field(pattern=r"^i-[0-9a-f]{8}([0-9a-f]{9})?$")], ...] = ()
    capacity_reservations: tuple[str, ...] = Field(
        (), description="targeted reservations and Capacity Blocks in which the pool's instances run"
    )
    min: int = Field(0, ge=0)
    max: int = Field(8, ge=0)
    base: int = Field(
        0,
        ge=0,
        description=("instances that the pool wants whether reserved or not; the size never falls below `min`"),
    )
    headroom: int = Field(0, ge=0, description="idle reserved instances that the pool leaves for other users")
    readings: int = Field(2, ge=1, le=20, description="how many readings in a row must ask for the same size")
    reading_seconds: float = Field(60.0, ge=0, description="readings closer together than this count as one")
    end_margin_seconds: float = Field(
        3600.0, ge=0, description="a reservation that ends sooner than this counts as gone"
    )
    lease_seconds: float = Field(
        900.0, gt=0, description="a claim that is not renewed for so long is free for other clusters"
    )
    priority: int = Field(
        0, description="clusters of higher priority are served first; at equal priority, the earlier claim"
    )
    dry_run: bool = Field(True, description="only record the decisions, without acting on them")

    @field_validator("max")
    @classmethod
    def _not_below_the_minimum(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min", 0)
        if value < least:
            raise ValueError(f"must not be below min ({least})")
        return value

    @field_validator("base")
    @classmethod
    def _not_above_the_maximum(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("max", value)
        if value > most:
            raise ValueError(f"must not be above max ({most})")
        return value

    @field_validator("instances")
    @classmethod
    def _a_group_or_instances(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("group") is not None:
            raise ValueError("a pool has a group or instances, not both")
        if len(set(value)) != len(value):
            raise ValueError("an instance is listed twice")
        return value

    def check(self, groups: Collection[str], *, waits: bool) -> None:
        """Raise ValueError when the policy does not fit a cluster with these groups. `waits` says that nodes wait for
        windows before they leave.
        """
        if not self.instances and (self.group not in groups if self.group is not None else len(groups) != 1):
            raise ValueError(
                f"group: name one of the cluster's groups ({', '.join(groups) or 'it has none'}), or list instances"
            )
        if waits and self.capacity_reservations:
            raise ValueError(
                "capacity_reservations: AWS takes machines when their reservation ends, so the pool cannot wait for "
                "leave_windows"
            )
