"""Makes and starts the parts that a prepared node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from controller.contract import NodeConfig
from node_bootstrap.config import clocks_of, read_target, read_wanted
from node_bootstrap.group import BlankProgram, PsGroup
from node_bootstrap.identity import Identity
from node_bootstrap.isolation import Isolation
from node_bootstrap.master import CoordinatorKeeper, CoordinatorProgram, coordinator_arguments, nominated_term
from node_bootstrap.metadata import MetadataClient
from node_bootstrap.ports import Parameters
from node_bootstrap.processes import Children
from node_bootstrap.promotion import until_base
from node_bootstrap.setting import Setting
from node_bootstrap.signal import ControlChannel
from node_bootstrap.spares import Program
from node_bootstrap.supervisor import Supervisor
from node_bootstrap.worker import Worker


@dataclass(frozen=True)
class Ground:
    """What a node knows once it has its configuration."""

    setting: Setting
    identity: Identity
    config: NodeConfig
    parameters: Parameters
    metadata: MetadataClient
    children: Children


def wire(ground: Ground, variables: Mapping[str, str], supervisor: Supervisor, tasks: asyncio.TaskGroup) -> ControlChannel:
    """All but the channel are started on return: it is the last to be."""
    layout, timing, identity, config = ground.setting.layout, ground.setting.timing, ground.identity, ground.config
    channel = ControlChannel(ground.parameters, identity.cluster, supervisor.hello, supervisor, timing, clocks_of(config))
    supervisor.tell = channel.tell

    worker_variables = {**variables, "ELASTIC_TRAINING_ENABLED": "1", "DYNTRAIN_CONTROL_FILE": str(layout.control_file)}
    supervisor.worker = worker = Worker(
        Program(config.training_cmd, config.mount, worker_variables, layout.logs / "worker.log"),
        ground.children,
        channel.tell,
        lambda reason: supervisor.report("worker_failed", reason),
        lambda: supervisor.report("prepared", "the coordinator had the worker started again"),
        timing,
        config.warm_spares,
    )
    tasks.create_task(worker.run())
    supervisor.isolation = Isolation(
        worker.welcomed,
        lambda: worker.suspend(timing.grace),
        lambda: read_wanted(ground.parameters, identity.cluster, identity.instance_id),
        supervisor.isolated,
        config.isolation_seconds,
        timing.ask,
    )
    tasks.create_task(supervisor.isolation.run())

    def serve() -> None:
        stand_as_base(ground, variables, supervisor, channel, tasks)

    if identity.base:
        serve()
    else:
        tasks.create_task(until_base(ground.metadata, serve, timing))
    return channel


def stand_as_base(ground: Ground, variables: Mapping[str, str], supervisor: Supervisor, channel: ControlChannel, tasks: asyncio.TaskGroup) -> None:
    """Start what only base nodes have: blank ps-lite processes, and the keeper that runs the coordinator where it is nominated."""
    setting, identity, config = ground.setting, ground.identity, ground.config
    layout, timing = setting.layout, setting.timing
    listening = {**variables, "DMLC_NODE_HOST": identity.private_ip}  # ps-lite would pick an interface by itself
    program = BlankProgram(setting.blank, listening, layout.logs / "pslite.log")
    supervisor.group = PsGroup(program, config.servers_per_base + 1, identity.private_ip, ground.children, channel.tell, timing)
    tasks.create_task(supervisor.group.run())

    async def term() -> int | None:
        return nominated_term(await read_target(ground.parameters, identity.cluster), identity)

    command = [*setting.coordinator, *coordinator_arguments(identity, config)]
    coordinator = CoordinatorProgram(command, variables, layout.logs / "coordinator.log")
    supervisor.coordinator = CoordinatorKeeper(coordinator, ground.children, term, lambda: channel.connected, timing)
    tasks.create_task(supervisor.coordinator.run())
    tasks.create_task(supervisor.coordinator_finished())
