"""What the reserved pool needs of the world beyond `ports`: reservations, all instances of the account, and the ledger
of claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dyntrain.controller.core.known.facts import InstanceState
from dyntrain.controller.core.pool.inputs import Capacity, Claim, Reserved
from dyntrain.controller.loops.ports import Ports


@dataclass(frozen=True)
class SeenMachine:
    """Any instance of the account, as far as reservations go."""

    instance: str
    instance_type: str
    zone: str
    platform: str
    tenancy: str
    state: InstanceState
    lifecycle: Literal["on-demand", "spot", "scheduled", "capacity-block"]
    capacity_reservation: str | None
    tags: Mapping[str, str]


@dataclass(frozen=True)
class StoredLedger:
    """The claims of all clusters in one item, so that two clusters cannot claim one reservation. `at`: when it was last
    written.
    """

    claims: Mapping[str, Claim] = field(default_factory=dict)
    at: float = 0.0
    version: int = 0


class Reservations(Protocol):
    """As all ports: a read that returns, returns everything."""

    def reserved(self) -> Sequence[Reserved]: ...

    def capacity(self) -> Sequence[Capacity]: ...

    def machines(self) -> Sequence[SeenMachine]:
        """All instances, also those that ended a short time ago: that tells them from such as EC2 merely does not
        show.
        """


class Ledger(Protocol):
    def get(self) -> StoredLedger:
        """A consistent read; an empty ledger of version 0 when there is none."""

    def put(self, stored: StoredLedger) -> None:
        """Write over `stored.version`. Raises Conflict."""


@dataclass(frozen=True)
class PoolPorts:
    ports: Ports
    reservations: Reservations
    ledger: Ledger
