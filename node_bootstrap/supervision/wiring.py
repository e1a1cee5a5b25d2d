"""Builds the supervisor of a node, and the services that run beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dyntrain.controller.contract.messages import IDENTITY_VARIABLE, NodeConfig
from dyntrain.controller.contract.notices import Rebalance
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.accounts import UserAccount
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program
from dyntrain.node_bootstrap.host.workers import write_workers
from dyntrain.node_bootstrap.instance.identity import Identity, wait_until_base
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.instance.notices import NoticeWatch
from dyntrain.node_bootstrap.reports.config import (
    Parameters,
    clocks_of,
    working_folder,
)
from dyntrain.node_bootstrap.reports.published import PublishedParameters
from dyntrain.node_bootstrap.reports.report import ControllerStatus, Reporter, Reports, StatusReceiver
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
    """Return the training program with the environment of a worker, which finds its job through `control_file`.

    All workers hash strings with the same seed, since a training script may depend on the order of a `set`. If the
    program's environment already sets PYTHONHASHSEED, the value is not overwritten.
    """
    hash_seed = program.environment.get("PYTHONHASHSEED", "0")
    return program.with_environment(
        {
            "ELASTIC_TRAINING_ENABLED": "1",
            "DYNTRAIN_CONTROL_FILE": str(control_file),
            "PYTHONHASHSEED": hash_seed,
        }
    )


def path_of_slot(path: Path, slot: int) -> Path:
    """Return the path for the worker with the number `slot` on this node, such as `worker-1.log` (slot 0: `path`)."""
    return path.with_name(f"{path.stem}-{slot}{path.suffix}") if slot else path


def make_worker(
    program: Program | None,
    children: Children,
    channel: ControlChannel,
    status: StatusReceiver,
    timing: Timing,
    warm_spares: int,
) -> Worker:
    """Make a worker. `program` comes from `worker_program`, or is None if a person launches the program later."""
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
    worker: Worker, is_wanted: Callable[[], Awaitable[bool]], status: StatusReceiver, seconds: float, timing: Timing
) -> Isolation:
    """Make the `Isolation`, which stops `worker` when the node has had no coordinator for `seconds`.

    `is_wanted` asks the controller whether it wants the node.
    """

    def on_stopped(reason: str) -> None:
        status.set_listed(False)  # so that the report is repeated until a coordinator lists the node again
        status.report("prepared", reason)

    return Isolation(
        worker.on_welcome,
        lambda: worker.suspend(timing.retire_grace_seconds),
        is_wanted,
        on_stopped,
        seconds,
        timing.controller_query_backoff,
    )


@dataclass(frozen=True)
class Ec2Node:
    """A node on EC2: its identity and configuration, and what its supervisor needs."""

    identity: Identity
    config: NodeConfig
    attempt: int  # number of the run of the node's program
    environment: Mapping[str, str]  # of all processes of the node
    layout: Layout
    timing: Timing
    parameters: Parameters
    reports: Reports
    metadata: MetadataClient
    children: Children
    coordinator: Sequence[str]  # command of the coordinator
    blank: Sequence[str]  # command of the fork server for ps-lite processes
    account: UserAccount | None = None  # user of the job's programs; None: the current user

    @property
    def user(self) -> str | None:
        return self.account.name if self.account else None


@dataclass(frozen=True)
class Ec2Services:
    """The services of a node on EC2; `supervisor` runs only once the node is prepared, and the others run at once."""

    reporter: Reporter
    status: ControllerStatus
    notices: NoticeWatch
    logs: tuple[LogShipping | VolumeLog, ...]
    supervisor: Supervisor


def build_services(node: Ec2Node) -> Ec2Services:
    """Make all services of the node, without starting any service."""
    identity, config, layout, timing, children = node.identity, node.config, node.layout, node.timing, node.children
    configured_timeouts = clocks_of(config)
    reporter = Reporter(node.reports, timing)
    status = ControllerStatus(identity, node.attempt, reporter)
    published_parameters = PublishedParameters(node.parameters, identity, timing)
    channel = ControlChannel(identity.cluster, published_parameters.access, timing, configured_timeouts)

    # `supervisor` is defined below, before the watch runs
    notices = NoticeWatch(node.metadata, lambda notice: supervisor.on_notice(notice), timing)
    slots = range(config.workers_per_node)
    job_logs: tuple[LogShipping | VolumeLog, ...] = (
        LogShipping(identity, layout, children, len(slots)),
        *(volume_log for slot in slots for volume_log in _volume_logs_of_slot(node, slot)),
    )
    worker = _make_worker_of_slot(node, 0, channel, status)
    isolation = make_isolation(worker, published_parameters.is_wanted, status, config.isolation_seconds, timing)

    def on_addresses(addresses: Sequence[str]) -> None:
        published_parameters.set_addresses(addresses)
        write_workers(layout, addresses)

    rebalance_rule = Rebalance(config.rebalance, config.rebalance_grace_seconds)
    supervised_node = SupervisedNode(
        identity,
        node.attempt,
        config.mount,
        layout.control_file,
        timing,
        configured_timeouts,
        rebalance_rule,
        node.account,
        config.output_location is not None,
        slots=len(slots),
    )
    supervisor = Supervisor(
        supervised_node,
        channel,
        status,
        worker,
        isolation,
        _make_base_duties(node, channel, published_parameters),
        notices,
        job_logs,
        on_addresses,
        _make_launch_desk(node, channel) if identity.base else None,
        _program_maker(node, 0),
        [_make_further_supervisor(node, slot, supervised_node, published_parameters, status) for slot in slots[1:]],
    )
    return Ec2Services(reporter, status, notices, job_logs, supervisor)


def _make_further_supervisor(
    node: Ec2Node, slot: int, supervised: SupervisedNode, published: PublishedParameters, status: ControllerStatus
) -> Supervisor:
    """Make the supervisor of a further worker, which has its own control file and connection to the coordinator."""
    identity, config, timing = node.identity, node.config, node.timing
    channel = ControlChannel(identity.cluster, published.access, timing, clocks_of(config))
    worker = _make_worker_of_slot(node, slot, channel, status)
    isolation = make_isolation(worker, published.is_wanted, status, config.isolation_seconds, timing)
    slot_node = replace(supervised, control_file=path_of_slot(node.layout.control_file, slot), slot=slot)
    return Supervisor(slot_node, channel, status, worker, isolation, program_of=_program_maker(node, slot))


def _make_worker_of_slot(node: Ec2Node, slot: int, channel: ControlChannel, status: ControllerStatus) -> Worker:
    config = node.config
    variables = {**node.environment, **_path_variable(config)}
    if config.dt_scripts:
        variables = environment(variables, os.environ)
    training_program = Program(
        config.training_cmd, variables, _worker_log_path(node, slot), working_folder(config), user=node.user
    )
    slot_program = (
        worker_program(training_program, path_of_slot(node.layout.control_file, slot)) if config.training_cmd else None
    )
    return make_worker(slot_program, node.children, channel, status, node.timing, config.warm_spares)


def _worker_log_path(node: Ec2Node, slot: int) -> Path:
    return path_of_slot(node.layout.log_folder / "worker.log", slot)


def _program_maker(node: Ec2Node, slot: int) -> Callable[[Launch], Program] | None:
    """Return a function that makes the program of a launch, or None if the configuration names a training command."""
    return None if node.config.training_cmd else lambda launch: _program_of_launch(node, launch, slot)


def _volume_logs_of_slot(node: Ec2Node, slot: int) -> tuple[VolumeLog, ...]:
    if node.config.logs != "volume":
        return ()
    cluster, instance_id, mount = node.identity.cluster, node.identity.instance_id, Path(node.config.mount)

    def log_copy_of(job: str) -> Path:
        return path_of_slot(JobFolder.of(mount, cluster, job).log_of(instance_id), slot)

    program_log = path_of_slot(node.layout.log_folder / "log-copy.log", slot)
    return (VolumeLog(_worker_log_path(node, slot), log_copy_of, node.children, node.user, program_log, node.timing),)


def _make_launch_desk(node: Ec2Node, channel: ControlChannel) -> LaunchDesk:
    group_id = node.account.gid if node.account else -1
    return LaunchDesk(
        node.layout.launch_socket,
        group_id,
        node.identity.cluster,
        node.config.mount,
        _worker_log_path(node, 0),
        channel.send,
    )


def _program_of_launch(node: Ec2Node, launch: Launch, slot: int) -> Program:
    variables = {**node.environment, **_path_variable(node.config), **launch.environment}
    if launch.dt_scripts or node.config.dt_scripts:
        variables = environment(variables, os.environ)
    launched_program = Program(
        launch.command, variables, _worker_log_path(node, slot), launch.directory, user=node.user
    )
    return worker_program(launched_program, path_of_slot(node.layout.control_file, slot))


def _path_variable(config: NodeConfig) -> dict[str, str]:
    """Return the variable PATH with which `python` is the Python that has MXNet.

    PATH is returned only for code from S3 and for launched jobs, which need the program `python`.
    """
    if config.code is None and config.training_cmd:
        return {}
    return own_programs_first(config.environment)


def own_programs_first(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable PATH, with the folder of this Python's programs first."""
    search_path = environment.get("PATH", os.environ.get("PATH", os.defpath))
    return {"PATH": os.pathsep.join([str(Path(sys.executable).parent), search_path])}


def _make_base_duties(node: Ec2Node, channel: ControlChannel, published: PublishedParameters) -> BaseDuties:
    identity, config, layout = node.identity, node.config, node.layout
    # explicit address: ps-lite would otherwise pick an interface itself
    variables = {**node.environment, "DMLC_NODE_HOST": identity.private_ip}
    user_id = node.account.uid if node.account else None
    blank_program = Program(node.blank, variables, layout.log_folder / "pslite.log", user=node.user)
    process_count, private_ip = config.servers_per_base + 1, identity.private_ip
    ps_group = PsGroup(blank_program, process_count, private_ip, node.children, channel.send, node.timing, user_id)

    async def read_nominated_term() -> int | None:
        return nominated_term(await published.target(), identity)

    coordinator_command = [*node.coordinator, *coordinator_arguments(identity, config)]
    identity_variables = {IDENTITY_VARIABLE: identity.signed.model_dump_json()} if identity.signed is not None else {}
    log_path = layout.log_folder / "coordinator.log"
    coordinator_program = Program(
        coordinator_command, {**node.environment, **identity_variables}, log_path, user=node.user
    )
    coordinator = CoordinatorKeeper(
        coordinator_program,
        node.children,
        read_nominated_term,
        lambda: channel.connected,
        node.timing,
        restart_after_job=not config.training_cmd,
    )
    wait_until_due = return_at_once if identity.base else lambda: wait_until_base(node.metadata, node.timing)
    return BaseDuties(wait_until_due, ps_group, coordinator, all_serve=config.servers == "all")
