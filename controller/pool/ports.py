"""Ports of the pool of reserved capacity, in addition to `loops.ports`. These ports cover reservations, all instances
of the account, and the ledger of claims.

A port is an interface through which the controller uses one AWS service.
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
    """An instance of the account, with the properties that matter for reservations."""

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
    """The claims of all clusters in one table item, so that two clusters cannot claim the same reservation."""

    claims: Mapping[str, Claim] = field(default_factory=dict)  # by cluster
    at: float = 0.0  # the time of the last write
    version: int = 0  # of the table's item


class Reservations(Protocol):
    """The reservations and machines of the account. As with all ports, a read either returns a complete result or
    raises an error.
    """

    def reserved(self) -> Sequence[Reserved]: ...

    def capacity(self) -> Sequence[Capacity]: ...

    def machines(self) -> Sequence[SeenMachine]:
        """All instances, including recently terminated instances. If an instance is missing here, EC2 does not show it,
        although it may still run.
        """


class Ledger(Protocol):
    def get(self) -> StoredLedger:
        """Read the ledger with a strongly consistent read. Without one, returns an empty ledger of version 0."""

    def put(self, stored: StoredLedger) -> None:
        """Replace the ledger of version `stored.version`. Raises Conflict when the ledger has a different version."""


@dataclass(frozen=True)
class PoolPorts:
    ports: Ports
    reservations: Reservations
    ledger: Ledger
