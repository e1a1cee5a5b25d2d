"""Ports of the pool of reserved instances, in addition to the ports in `loops.ports`. The pool's ports give access to
reservations, to all instances of the account, and to the ledger of the clusters' claims.

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
    """An EC2 instance of the account, with the properties that matter for reserved capacity."""

    instance: str  # EC2 instance id
    instance_type: str
    zone: str  # availability zone
    platform: str  # operating system, as AWS writes it
    tenancy: str  # such as default or dedicated
    state: InstanceState
    lifecycle: Literal["on-demand", "spot", "scheduled", "capacity-block"]
    capacity_reservation: str | None  # id of the reservation in which it runs
    tags: Mapping[str, str]


@dataclass(frozen=True)
class StoredLedger:
    """The claims of all clusters to reserved instances. All claims are in one item of the DynamoDB table, so that two
    clusters cannot claim the same reservation.
    """

    claims: Mapping[str, Claim] = field(default_factory=dict)  # by cluster
    at: float = 0.0  # the time of the last write
    version: int = 0  # of the table's item


class Reservations(Protocol):
    """A port to the reservations and the EC2 instances of the account. Each method either returns a complete result or
    raises an error.
    """

    def reserved_instances(self) -> Sequence[Reserved]: ...

    def capacity_reservations(self) -> Sequence[Capacity]: ...

    def machines(self) -> Sequence[SeenMachine]:
        """All EC2 instances of the account that EC2 shows, including recently terminated instances. An instance that is
        missing from the result may still run.
        """


class Ledger(Protocol):
    def get(self) -> StoredLedger:
        """Read the ledger with a strongly consistent read. If no ledger is stored, the result is an empty ledger of
        version 0.
        """

    def put(self, stored: StoredLedger) -> None:
        """Overwrite a stored ledger of version `stored.version`. Raises Conflict if the stored ledger has another
        version.
        """


@dataclass(frozen=True)
class PoolPorts:
    ports: Ports
    reservations: Reservations
    ledger: Ledger
