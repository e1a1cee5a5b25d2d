"""The engine's own processes of a generation, and the nodes on which they run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from dyntrain.training.protocol.engines import SERVER_MEMORY, EngineName
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello, PsProcess, StartGroup
from dyntrain.training.protocol.slots import node_of, places
from dyntrain.training.session.orders import ToNode

# The kernel hands out memory page by page as it is first used, which takes a server as long as adding up. Beyond so
# much it does: a large job's server would hold twice its memory where the one before it has not ended yet.
SERVER_MEMORY_AT_MOST = 1 << 30


@dataclass
class ConnectedNode:
    """A connected supervisor; `group` is its offer of blank ps-lite processes, gone once used."""

    hello: NodeHello
    group: GroupReady | None = None

    def holds(self, blanks: int) -> bool:
        return self.group is not None and self.group.blanks >= blanks

    @property
    def can_schedule(self) -> bool:
        """A base node that has a blank for ps-lite's scheduler and one for a server."""
        return self.hello.base and self.holds(2)


@dataclass(frozen=True)
class Group:
    """The processes of a generation: what its workers need to know, each by its number and all of them, and the orders
    that start them.
    """

    environment: dict[str, str]
    hosts: tuple[str, ...]
    orders: tuple[ToNode, ...]
    own: Mapping[str, dict[str, str]] = field(default_factory=dict)

    def environment_of(self, worker: str) -> dict[str, str]:
        return {**self.environment, **self.own.get(worker, {})}


def choose_scheduler(nodes: Mapping[str, ConnectedNode]) -> str | None:
    """The base node for ps-lite's scheduler, or Horovod's rendezvous: the lowest address among those that can. None:
    nobody can.
    """
    able = (i for i, node in nodes.items() if node.can_schedule)
    return min(able, key=lambda i: (nodes[i].hello.private_ip, i), default=None)


def plan_group(
    engine: EngineName,
    number: int,
    nodes: Mapping[str, ConnectedNode],
    scheduler: str,
    workers: Sequence[str],
    summed_bytes: int = 0,
) -> Group:
    """`summed_bytes`: what each worker sends in a step."""
    if engine == "horovod":
        return plan_rendezvous(number, nodes[scheduler], workers)
    return plan_servers(number, nodes, scheduler, len(workers), summed_bytes)


def plan_rendezvous(number: int, host: ConnectedNode, workers: Sequence[str]) -> Group:
    """One process, while they form. The names are Horovod's own: see `horovod.runner.gloo_run`. Each node counts as a
    host of its own, wherever it runs.
    """
    assert host.group is not None
    where = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host.hello.private_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(host.group.scheduler_port),
    }
    ranks = {
        worker: {
            "HOROVOD_HOSTNAME": node_of(worker),
            **{f"HOROVOD_{name.upper()}": str(value) for name, value in asdict(place).items()},
        }
        for worker, place in places(workers).items()
    }
    process = PsProcess(role="rendezvous", environment=where)
    order = ToNode(host.hello.name, StartGroup(generation=number, processes=(process,)))
    return Group(where, (host.hello.name,), (order,), ranks)


def plan_servers(
    number: int, nodes: Mapping[str, ConnectedNode], scheduler: str, workers: int, summed_bytes: int
) -> Group:
    """A scheduler on one base node and a server on each of `nodes` that holds blanks. In a step all workers' parts may
    be with a server at once.
    """
    root = nodes[scheduler]
    assert root.group is not None
    hosts = tuple(i for i, node in sorted(nodes.items()) if node.holds(2 if i == scheduler else 1))
    environment = {
        "DMLC_PS_ROOT_URI": root.hello.private_ip,
        "DMLC_PS_ROOT_PORT": str(root.group.scheduler_port),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(len(hosts)),
    }
    roles: dict[str, list[Literal["scheduler", "server"]]] = {host: ["server"] for host in hosts}
    roles[scheduler].insert(0, "scheduler")
    memory = min(SERVER_MEMORY_AT_MOST, workers * summed_bytes // len(hosts))
    more = {"server": {SERVER_MEMORY: str(memory)}, "scheduler": {}}
    orders = tuple(
        ToNode(
            host,
            StartGroup(
                generation=number,
                processes=tuple(
                    PsProcess(role=role, environment={**environment, **more[role]}) for role in roles[host]
                ),
            ),
        )
        for host in hosts
    )
    return Group(environment, hosts, orders)
