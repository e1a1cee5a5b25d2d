"""Ports of the reserved pool beyond `loops.ports`: reservations, all instances of the account, and the ledger of
claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dyntrain.controller.core.pool.inputs import Capacity, Claim, Reserved
from dyntrain.controller.core.records.facts import InstanceState
from dyntrain.controller.loops.ports import Ports


@dataclass(frozen=True)
class SeenMachine:
    """Any instance of the account, with what matters for reservations."""

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
    """The reservations and machines of the account. As for all ports, a read that returns is complete."""

    def reserved(self) -> Sequence[Reserved]: ...

    def capacity(self) -> Sequence[Capacity]: ...

    def machines(self) -> Sequence[SeenMachine]:
        """All instances, also recently ended ones: that distinguishes those from instances that EC2 merely does not
        show.
        """


class Ledger(Protocol):
    def get(self) -> StoredLedger:
        """Read the ledger, consistently; an empty one of version 0 when there is none."""

    def put(self, stored: StoredLedger) -> None:
        """Write over `stored.version`. Raises Conflict."""


@dataclass(frozen=True)
class PoolPorts:
    ports: Ports
    reservations: Reservations
    ledger: Ledger
