"""Ports of the reserved pool in addition to `loops.ports`: reservations, all instances of the account, and the ledger
of claims.

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
    """The claims of all clusters in one item, so that two clusters cannot claim the same reservation. `at` is the time
    of the last write.
    """

    claims: Mapping[str, Claim] = field(default_factory=dict)
    at: float = 0.0
    version: int = 0


class Reservations(Protocol):
    """The reservations and machines of the account. As for all ports, a read either is complete or raises."""

    def reserved(self) -> Sequence[Reserved]: ...

    def capacity(self) -> Sequence[Capacity]: ...

    def machines(self) -> Sequence[SeenMachine]:
        """All instances, including recently terminated ones. So EC2 does not show a missing instance, which may still
        run.
        """


class Ledger(Protocol):
    def get(self) -> StoredLedger:
        """Read the ledger consistently. A missing ledger is returned empty, with version 0."""

    def put(self, stored: StoredLedger) -> None:
        """Write the ledger over `stored.version`. Raises Conflict."""


@dataclass(frozen=True)
class PoolPorts:
    ports: Ports
    reservations: Reservations
    ledger: Ledger
