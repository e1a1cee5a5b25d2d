"""A world in memory with reservations, for the tests of the reserved pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.errors import Conflict
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.pool_policy import POOL_TAG, PoolPolicy
from dyntrain.controller.core.pool.inputs import Capacity, Reserved
from dyntrain.controller.pool.ports import PoolPorts, SeenMachine, StoredLedger
from dyntrain.controller.pool.rebalance import RebalanceResult, rebalance
from fakes import ELASTIC, Machine, World

TYPE, ZONE = "c5.large", "eu-central-1a"


@dataclass
class PoolWorld:
    """A `World` whose clusters have pools. Every instance is a c5.large on demand in one zone, unless `kinds` says
    otherwise.
    """

    world: World
    reserved: list[Reserved] = field(default_factory=list)
    capacity: list[Capacity] = field(default_factory=list)
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored: StoredLedger = field(default_factory=StoredLedger)
    hidden: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, *clusters: str, groups: bool = True, **pool: Any) -> PoolWorld:
        """Pools decide at once unless told otherwise."""
        world = World(*(clusters or ("demo",)))
        for cluster in clusters or ("demo",):
            given = {"instance_type": TYPE, "zone": ZONE, "readings": 1, "dry_run": False, **pool}
            named = (f"{cluster}-workers",) if groups else ()
            world.register(ClusterPolicy(cluster=cluster, groups=named, pool=PoolPolicy(**given)))
            world.limits[f"{cluster}-workers"] = (0, 100, 0)
        return cls(world)

    @property
    def ports(self) -> PoolPorts:
        return PoolPorts(self.world.ports, FakeReservations(self), FakeLedger(self))

    def reserve(self, count: int, **more: Any) -> None:
        """What is reserved in the region from now on."""
        given = {"id": "ri-1", "instance_type": TYPE, "count": count, "end": self.world.now + 1e6, **more}
        self.reserved = [Reserved(**given)] if count else []

    def demand(self, number: int) -> str:
        """An instance of somebody else."""
        return self.world.launch(number, owned=False, elastic=False)

    def stopped(self, number: int, pool: str = "demo") -> str:
        """A machine that the pool of a cluster may start."""
        instance = self.world.launch(number, owned=False, elastic=False, **{POOL_TAG: pool})
        self.world.machines[instance].state = "stopped"
        return instance

    def run(self, *, prompted: bool = False, wait: float = 300.0) -> RebalanceResult:
        self.world.wait(wait)
        return rebalance(self.ports, self.world.registry, ELASTIC, prompted=prompted)

    def desired(self, cluster: str = "demo") -> int:
        return self.world.limits[f"{cluster}-workers"][2]

    def launched(self, first: int, count: int, cluster: str = "demo") -> list[str]:
        """The group launches what it was asked for."""
        return [self.world.member(first + number, cluster, phase="in_service") for number in range(count)]

    def tagged(self, instance: str, cluster: str = "demo") -> bool:
        return ELASTIC_TAG.of(cluster) in self.world.machines[instance].tags

    def entries(self, kind: str) -> list[dict[str, str]]:
        return [dict(entry) for entry in self.world.trail if entry.get("kind") == kind]


class FakeReservations:
    def __init__(self, pools: PoolWorld) -> None:
        self.pools = pools
        self.world = pools.world

    def reserved_instances(self) -> Sequence[Reserved]:
        self.world.called("reservations.reserved")
        return list(self.pools.reserved)

    def capacity_reservations(self) -> Sequence[Capacity]:
        self.world.called("reservations.capacity")
        return list(self.pools.capacity)

    def machines(self) -> Sequence[SeenMachine]:
        self.world.called("reservations.machines")
        return [
            self._seen(name, machine) for name, machine in self.world.machines.items() if name not in self.pools.hidden
        ]

    def _seen(self, name: str, machine: Machine) -> SeenMachine:
        fields = {
            "instance_type": TYPE,
            "zone": ZONE,
            "platform": "Linux/UNIX",
            "tenancy": "default",
            "lifecycle": "on-demand",
            "capacity_reservation": None,
        }
        return SeenMachine(
            instance=name, state=machine.state, tags=dict(machine.tags), **{**fields, **self.pools.kinds.get(name, {})}
        )


class FakeLedger:
    def __init__(self, pools: PoolWorld) -> None:
        self.pools = pools

    def get(self) -> StoredLedger:
        self.pools.world.called("ledger.get")
        return self.pools.stored

    def put(self, stored: StoredLedger) -> None:
        self.pools.world.called("ledger.put")
        if stored.version != self.pools.stored.version:
            raise Conflict("the ledger has another version")
        self.pools.stored = StoredLedger(stored.claims, stored.at, stored.version + 1)
