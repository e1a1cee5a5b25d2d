"""Builds the supervisor of a node and all its parts."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dyntrain.controller.contract.messages import IDENTITY_VARIABLE, NodeConfig
from dyntrain.controller.contract.notices import Rebalance
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.accounts import Account
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program
from dyntrain.node_bootstrap.host.workers import write_workers
from dyntrain.node_bootstrap.instance.identity import Identity, until_base
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.instance.notices import NoticeWatch
from dyntrain.node_bootstrap.reports.config import (
    Parameters,
    clocks_of,
    working_folder,
)
from dyntrain.node_bootstrap.reports.published import Published
from dyntrain.node_bootstrap.reports.report import ControllerStatus, Reporter, Reports, Status
from dyntrain.node_bootstrap.reports.shipping import LogShipping
from dyntrain.node_bootstrap.reports.volume_log import VolumeLog
from dyntrain.node_bootstrap.supervision.base_duties import BaseDuties, return_at_once
from dyntrain.node_bootstrap.supervision.control_channel import ControlChannel
from dyntrain.node_bootstrap.supervision.group import PsGroup
from dyntrain.node_bootstrap.supervision.isolation import Isolation
from dyntrain.node_bootstrap.supervision.launch_desk import LaunchDesk
from dyntrain.node_bootstrap.supervision.master import (
    CoordinatorKeeper,
    coordinator_arguments,
    nominated_term,
)
from dyntrain.node_bootstrap.supervision.supervisor import SupervisedNode, Supervisor
from dyntrain.node_bootstrap.supervision.worker import Worker
from dyntrain.training.dt_scripts import environment
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.node_messages import Launch


def worker_program(program: Program, control_file: Path) -> Program:
    """The training program with the environment of a worker, which finds its job through `control_file`.

    All workers hash strings with the same seed. Otherwise each worker would number a vocabulary made from a `set`
    differently.
    A seed in the program's environment is kept.
    """
    hashing = program.environment.get("PYTHONHASHSEED", "0")
    return program.with_environment(
        {
            "ELASTIC_TRAINING_ENABLED": "1",
            "DYNTRAIN_CONTROL_FILE": str(control_file),
            "PYTHONHASHSEED": hashing,
        }
    )


def path_of_slot(path: Path, slot: int) -> Path:
    """The path for the node's worker with this slot number, such as `worker-1.log`; `path` itself for slot 0."""
    return path.with_name(f"{path.stem}-{slot}{path.suffix}") if slot else path


def make_worker(
    program: Program | None,
    children: Children,
    channel: ControlChannel,
    status: Status,
    timing: Timing,
    warm_spares: int,
) -> Worker:
    """Make the worker. `program` comes from `worker_program`; None if a person launches it later."""
    return Worker(
        program,
        children,
        channel.send,
        lambda reason: status.report("worker_failed", reason),
        lambda: status.report("prepared", "the coordinator had the worker started again"),
        timing,
        warm_spares,
    )


def make_isolation(
    worker: Worker, is_wanted: Callable[[], Awaitable[bool]], status: Status, seconds: float, timing: Timing
) -> Isolation:
    """Make the isolation. `is_wanted` asks whether the node may train, and raises ServiceUnavailable."""

    def on_stopped(reason: str) -> None:
        status.set_listed(False)  # so that the report is repeated until a coordinator lists the node again
        status.report("prepared", reason)

    return Isolation(
        worker.on_welcome, lambda: worker.suspend(timing.grace), is_wanted, on_stopped, seconds, timing.ask
    )


@dataclass(frozen=True)
class Ec2Node:
    """A node of a cluster, with its configuration.

    `environment` is used by all processes of the node. `coordinator` and `blank` are commands. `account` is the user
    that runs these commands and the training script; None: the current user.
    """

    identity: Identity
    config: NodeConfig
    attempt: int
    environment: Mapping[str, str]
    layout: Layout
    timing: Timing
    parameters: Parameters
    reports: Reports
    metadata: MetadataClient
    children: Children
    coordinator: Sequence[str]
    blank: Sequence[str]
    account: Account | None = None

    @property
    def user(self) -> str | None:
        return self.account.name if self.account else None


@dataclass(frozen=True)
class Ec2Parts:
    """The parts to run: `reporter`, `notices` and `logs` from the start, `supervisor` once the node is prepared."""

    reporter: Reporter
    status: ControllerStatus
    notices: NoticeWatch
    logs: tuple[LogShipping | VolumeLog, ...]
    supervisor: Supervisor


def wire(node: Ec2Node) -> Ec2Parts:
    """Make all parts, without starting any."""
    identity, config, layout, timing, children = node.identity, node.config, node.layout, node.timing, node.children
    clocks = clocks_of(config)
    reporter = Reporter(node.reports, timing)
    status = ControllerStatus(identity, node.attempt, reporter)
    published = Published(node.parameters, identity, timing)
    channel = ControlChannel(identity.cluster, published.access, timing, clocks)

    # `supervisor` is defined below, before the watch runs
    notices = NoticeWatch(node.metadata, lambda notice: supervisor.on_notice(notice), timing)
    slots = range(config.workers_per_node)
    logs: tuple[LogShipping | VolumeLog, ...] = (
        LogShipping(identity, layout, children, len(slots)),
        *(log for slot in slots for log in _volume_log(node, slot)),
    )
    worker = _worker(node, 0, channel, status)
    isolation = make_isolation(worker, published.is_wanted, status, config.isolation_seconds, timing)

    def on_addresses(addresses: Sequence[str]) -> None:
        published.set_addresses(addresses)
        write_workers(layout, addresses)

    rebalance = Rebalance(config.rebalance, config.rebalance_grace_seconds)
    supervised = SupervisedNode(
        identity,
        node.attempt,
        config.mount,
        layout.control_file,
        timing,
        clocks,
        rebalance,
        node.account,
        config.output_location is not None,
        slots=len(slots),
    )
    supervisor = Supervisor(
        supervised,
        channel,
        status,
        worker,
        isolation,
        _base_duties(node, channel, published),
        notices,
        logs,
        on_addresses,
        _desk(node, channel) if identity.base else None,
        _program_of(node, 0),
        [_further_supervisor(node, slot, supervised, published, status) for slot in slots[1:]],
    )
    return Ec2Parts(reporter, status, notices, logs, supervisor)


def _further_supervisor(
    node: Ec2Node, slot: int, supervised: SupervisedNode, published: Published, status: ControllerStatus
) -> Supervisor:
    """Supervisor of a further worker of the node, with its own connection to the coordinator and control file."""
    identity, config, timing = node.identity, node.config, node.timing
    channel = ControlChannel(identity.cluster, published.access, timing, clocks_of(config))
    worker = _worker(node, slot, channel, status)
    isolation = make_isolation(worker, published.is_wanted, status, config.isolation_seconds, timing)
    slot_node = replace(supervised, control_file=path_of_slot(node.layout.control_file, slot), slot=slot)
    return Supervisor(slot_node, channel, status, worker, isolation, program_of=_program_of(node, slot))


def _worker(node: Ec2Node, slot: int, channel: ControlChannel, status: ControllerStatus) -> Worker:
    config = node.config
    variables = {**node.environment, **_path(config)}
    if config.dt_scripts:
        variables = environment(variables, os.environ)
    configured = Program(config.training_cmd, variables, _log_path(node, slot), working_folder(config), user=node.user)
    program = worker_program(configured, path_of_slot(node.layout.control_file, slot)) if config.training_cmd else None
    return make_worker(program, node.children, channel, status, node.timing, config.warm_spares)


def _log_path(node: Ec2Node, slot: int) -> Path:
    return path_of_slot(node.layout.logs / "worker.log", slot)


def _program_of(node: Ec2Node, slot: int) -> Callable[[Launch], Program] | None:
    """How to make the program of a launch; None if the configuration has a training command."""
    return None if node.config.training_cmd else lambda launch: _program_of_launch(node, launch, slot)


def _volume_log(node: Ec2Node, slot: int) -> tuple[VolumeLog, ...]:
    if node.config.logs != "volume":
        return ()
    cluster, instance, mount = node.identity.cluster, node.identity.instance_id, Path(node.config.mount)

    def log_copy_of(job: str) -> Path:
        return path_of_slot(JobFolder.of(mount, cluster, job).log_of(instance), slot)

    own_log = path_of_slot(node.layout.logs / "log-copy.log", slot)
    return (VolumeLog(_log_path(node, slot), log_copy_of, node.children, node.user, own_log, node.timing),)


def _desk(node: Ec2Node, channel: ControlChannel) -> LaunchDesk:
    group = node.account.gid if node.account else -1
    return LaunchDesk(
        node.layout.launch_socket, group, node.identity.cluster, node.config.mount, _log_path(node, 0), channel.send
    )


def _program_of_launch(node: Ec2Node, launch: Launch, slot: int) -> Program:
    variables = {**node.environment, **_path(node.config), **launch.environment}
    if launch.dt_scripts or node.config.dt_scripts:
        variables = environment(variables, os.environ)
    program = Program(launch.command, variables, _log_path(node, slot), launch.directory, user=node.user)
    return worker_program(program, path_of_slot(node.layout.control_file, slot))


def _path(config: NodeConfig) -> dict[str, str]:
    """PATH for code from S3 and for launches: there `python` is the Python that has MXNet."""
    if config.code is None and config.training_cmd:
        return {}
    return own_programs_first(config.environment)


def own_programs_first(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable PATH, with the programs of this Python environment first."""
    path = environment.get("PATH", os.environ.get("PATH", os.defpath))
    return {"PATH": os.pathsep.join([str(Path(sys.executable).parent), path])}


def _base_duties(node: Ec2Node, channel: ControlChannel, published: Published) -> BaseDuties:
    identity, config, layout = node.identity, node.config, node.layout
    # explicit address: ps-lite would otherwise pick an interface itself
    variables = {**node.environment, "DMLC_NODE_HOST": identity.private_ip}
    uid = node.account.uid if node.account else None
    blank = Program(node.blank, variables, layout.logs / "pslite.log", user=node.user)
    count, address = config.servers_per_base + 1, identity.private_ip
    group = PsGroup(blank, count, address, node.children, channel.send, node.timing, uid)

    async def term() -> int | None:
        return nominated_term(await published.target(), identity)

    command = [*node.coordinator, *coordinator_arguments(identity, config)]
    proof = {IDENTITY_VARIABLE: identity.signed.model_dump_json()} if identity.signed is not None else {}
    log_path = layout.logs / "coordinator.log"
    program = Program(command, {**node.environment, **proof}, log_path, user=node.user)
    coordinator = CoordinatorKeeper(
        program, node.children, term, lambda: channel.connected, node.timing, restart_after_job=not config.training_cmd
    )
    wait_until_due = return_at_once if identity.base else lambda: until_base(node.metadata, node.timing)
    return BaseDuties(wait_until_due, group, coordinator, all_serve=config.servers == "all")
