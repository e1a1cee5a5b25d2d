"""Plans a generation's processes of the engine (ps-lite or Horovod), and which nodes run these processes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from dyntrain.training.protocol.engines import SERVER_MEMORY, EngineName
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello, PsProcess, StartGroup
from dyntrain.training.protocol.slots import node_of, places
from dyntrain.training.session.orders import ToNode

# A server pre-allocates memory up to this limit, because page faults at first use take as much time as the sums. A
# higher limit could double a large job's memory, as the previous server may not have ended yet.
MAX_SERVER_BYTES = 1 << 30  # limit of the memory that a server pre-allocates


@dataclass
class ConnectedNode:
    """A node whose supervisor is connected.

    `group` is the node's offer of ps-lite processes that have no role yet, or None once these processes are used.
    """

    hello: NodeHello  # the node's first message
    group: GroupReady | None = None  # the node's unused ps-lite processes, if any

    def offers_processes(self, count: int) -> bool:
        return self.group is not None and self.group.blanks >= count

    @property
    def can_schedule(self) -> bool:
        """Whether the node is a base node with two unused processes, for ps-lite's scheduler and a server."""
        return self.hello.base and self.offers_processes(2)


@dataclass(frozen=True)
class EngineGroup:
    """The engine's processes in a generation, which are started by `orders` on `hosts`.

    Some environment variables are equal for all workers (`environment`), others differ between workers
    (`own_variables`).
    """

    environment: dict[str, str]  # variables for all workers
    hosts: tuple[str, ...]  # nodes that run the processes
    orders: tuple[ToNode, ...]  # that start the processes on `hosts`
    own_variables: Mapping[str, dict[str, str]] = field(default_factory=dict)  # each worker's own variables

    def environment_of(self, worker: str) -> dict[str, str]:
        return {**self.environment, **self.own_variables.get(worker, {})}


def choose_scheduler(nodes: Mapping[str, ConnectedNode]) -> str | None:
    """Return the node that is to run ps-lite's scheduler or Horovod's rendezvous, or None.

    Of all nodes that can run the scheduler or rendezvous, the node with the lowest address is chosen.
    """
    scheduler_nodes = (name for name, node in nodes.items() if node.can_schedule)
    return min(scheduler_nodes, key=lambda name: (nodes[name].hello.private_ip, name), default=None)


def plan_group(
    engine: EngineName,
    number: int,
    nodes: Mapping[str, ConnectedNode],
    scheduler: str,
    workers: Sequence[str],
    summed_bytes: int = 0,
) -> EngineGroup:
    """Plan the processes of the engine that the workers use; each worker sends `summed_bytes` bytes in a step."""
    if engine == "horovod":
        return plan_rendezvous(number, nodes[scheduler], workers)
    return plan_servers(number, nodes, scheduler, len(workers), summed_bytes)


def plan_rendezvous(number: int, host: ConnectedNode, workers: Sequence[str]) -> EngineGroup:
    """Plan Horovod's rendezvous, a process that is needed only during the formation.

    The environment variables are those that `horovod.runner.gloo_run` sets. Horovod treats each node as a separate
    host, even if several nodes run on one machine.
    """
    assert host.group is not None
    shared_variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host.hello.private_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(host.group.scheduler_port),
    }
    rank_variables = {
        worker: {
            "HOROVOD_HOSTNAME": node_of(worker),
            **{f"HOROVOD_{name.upper()}": str(value) for name, value in asdict(place).items()},
        }
        for worker, place in places(workers).items()
    }
    process = PsProcess(role="rendezvous", environment=shared_variables)
    start_order = ToNode(host.hello.name, StartGroup(generation=number, processes=(process,)))
    return EngineGroup(shared_variables, (host.hello.name,), (start_order,), rank_variables)


def plan_servers(
    number: int, nodes: Mapping[str, ConnectedNode], scheduler: str, workers: int, summed_bytes: int
) -> EngineGroup:
    """Plan ps-lite's processes: one scheduler, on the node `scheduler`, and servers.

    A server runs on each of `nodes` that has an unused process for a server. A server's memory is sized for its share
    of the gradients of all workers, as a server may hold all workers' gradients at once.
    """
    scheduler_node = nodes[scheduler]
    assert scheduler_node.group is not None
    hosts = tuple(name for name, node in sorted(nodes.items()) if node.offers_processes(2 if name == scheduler else 1))
    environment = {
        "DMLC_PS_ROOT_URI": scheduler_node.hello.private_ip,
        "DMLC_PS_ROOT_PORT": str(scheduler_node.group.scheduler_port),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(len(hosts)),
    }
    roles: dict[str, list[Literal["scheduler", "server"]]] = {host: ["server"] for host in hosts}
    roles[scheduler].insert(0, "scheduler")
    server_bytes = min(MAX_SERVER_BYTES, workers * summed_bytes // len(hosts))
    role_variables = {"server": {SERVER_MEMORY: str(server_bytes)}, "scheduler": {}}
    start_orders = tuple(
        ToNode(
            host,
            StartGroup(
                generation=number,
                processes=tuple(
                    PsProcess(role=role, environment={**environment, **role_variables[role]}) for role in roles[host]
                ),
            ),
        )
        for host in hosts
    )
    return EngineGroup(environment, hosts, start_orders)
