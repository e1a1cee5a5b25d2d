"""Carries out the coordinator's orders on this host, and reports the host's events to the coordinator."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.contract.notices import LEAVE_ON_RECOMMENDATION, Rebalance
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.accounts import UserAccount
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.processes import Program
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.instance.notices import Notice, NoticeWatch
from dyntrain.node_bootstrap.reports.config import Access
from dyntrain.node_bootstrap.reports.report import StatusReceiver
from dyntrain.node_bootstrap.supervision.base_duties import BaseDuties
from dyntrain.node_bootstrap.supervision.control_channel import ControlChannel
from dyntrain.node_bootstrap.supervision.isolation import Isolation
from dyntrain.node_bootstrap.supervision.launch_desk import LaunchDesk
from dyntrain.node_bootstrap.supervision.worker import Worker
from dyntrain.training.protocol.clocks import DEFAULT, Clocks
from dyntrain.training.protocol.node_messages import (
    CoolDown,
    Launch,
    LaunchAnswer,
    Launched,
    Listed,
    NodeHello,
    NodeNotice,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    Welcome,
    Workers,
)
from dyntrain.training.protocol.results import END_SECONDS, SCRIPTS_SECONDS
from dyntrain.training.protocol.wire import FromCoordinator
from dyntrain.training.timeouts import timeout

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SupervisedNode:
    """Identity of the node, and the settings of its worker."""

    identity: Identity
    attempt: int  # number of the run of the node's program
    mount: str  # path of the shared volume
    control_file: Path  # file from which the worker learns how to connect to the coordinator
    timing: Timing
    clocks: Clocks = DEFAULT  # timeouts of connections and of the training's progress
    rebalance: Rebalance = LEAVE_ON_RECOMMENDATION  # what the node does on a rebalance recommendation
    account: UserAccount | None = None  # user of the worker; None: this process's user
    results: bool = False  # whether the coordinator uploads the job's results
    slot: int = 0  # number of this worker on the node; each worker has its own supervisor
    slots: int = 1  # number of workers on the node


class JobLogs(Protocol):
    """Log files or log streams, each of which contains the logs of one job."""

    def set_job(self, job: str) -> None:
        """Write the logs of `job` from now on; called for each connection to a coordinator."""


class Supervisor:
    """Supervises a worker, and handles the coordinator's messages (`MessageReceiver`) that arrive over `channel`.

    `notices` and `logs` are used only on EC2. `base` is None if the node can never be a base node. `on_addresses` is
    called with the addresses of the cluster's nodes. With `desk`, users can launch jobs on this node. `program_of` is
    used if the cluster has no training command, and makes the program of a job that a user launches. With `program_of`,
    the node does not retire at a job's end. `other_supervisors` supervise the node's other workers, and run and retire
    together with this supervisor.

    The event `unlisted` is set while the controller's target does not list the node, according to the coordinator.
    """

    def __init__(
        self,
        node: SupervisedNode,
        channel: ControlChannel,
        status: StatusReceiver,
        worker: Worker,
        isolation: Isolation,
        base: BaseDuties | None = None,
        notices: NoticeWatch | None = None,
        logs: Sequence[JobLogs] = (),
        on_addresses: Callable[[Sequence[str]], None] = lambda addresses: None,
        desk: LaunchDesk | None = None,
        program_of: Callable[[Launch], Program] | None = None,
        other_supervisors: Sequence[Supervisor] = (),
    ) -> None:
        self.other_supervisors = other_supervisors
        self._node, self._channel, self._status = node, channel, status
        self.worker, self._isolation, self.base = worker, isolation, base
        self._notices, self._logs, self._on_addresses = notices, logs, on_addresses
        self._desk, self._program_of = desk, program_of
        self._job, self._life = "", secrets.token_hex(8)
        self._retired = asyncio.Event()
        self._retirement_reason = ""
        self.unlisted = asyncio.Event()

    async def run(self) -> None:
        """Run the worker, the connection to the coordinator and all services of the node, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.worker.run())
            tasks.create_task(self._isolation.run())
            if self.base is not None:
                tasks.create_task(self.base.run())
                tasks.create_task(self._retire_after_coordinator(self.base))
            if self._desk is not None:
                tasks.create_task(self._desk.run())
            tasks.create_task(self._channel.run(self))
            for supervisor in self.other_supervisors:
                tasks.create_task(supervisor.run())

    async def until_retired(self) -> str:
        """Wait until the coordinator no longer needs the node; returns the reason."""
        await self._retired.wait()
        return self._retirement_reason

    # ---- the control channel's receiver

    def hello(self) -> NodeHello:
        """Return the message with which this node introduces itself to the coordinator."""
        identity = self._node.identity
        return NodeHello(
            cluster=identity.cluster,
            instance_id=identity.instance_id,
            private_ip=identity.private_ip,
            slot=self._node.slot,
            slots=self._node.slots,
            identity=identity.signed,
            attempt=self._node.attempt,
            base=(identity.base and not self._node.slot)
            or (self.base is not None and self.base.has_begun),  # the tag may have come later
            worker_pid=self.worker.pid,
            life=self._life,
        )

    async def on_welcome(self, access: Access, welcome: Welcome) -> None:
        """Prepare the worker for the job of the coordinator, and send the node's current state to the coordinator."""
        self.write_control_file(access)
        if self._program_of is not None:
            if self.base is not None and self._job not in ("", welcome.job):  # the end of that job may have been missed
                await self.base.group.forget_groups()
            if welcome.launch is None:  # a script that has left the job may still save its model
                await self.worker.wait_for_end(self._node.timing.finish_seconds)
            self.worker.set_program(None if welcome.launch is None else self._program_of(welcome.launch))
        self._job = welcome.job
        for job_logs in self._logs:
            job_logs.set_job(welcome.job)
        if self.base is not None and self.base.runs_ps_lite:
            for message in self.base.group.state():
                self._channel.send(message)
        for notice in self._notices.notices.values() if self._notices is not None else ():
            self._send_deadline(notice)
        await self._isolation.on_welcome(welcome.job)

    def on_notice(self, notice: Notice) -> None:
        """Report to coordinator and controller that EC2 may take the instance away.

        A rebalance recommendation that the configuration ignores is not reported, since its report would replace other
        reports.
        """
        if self._send_deadline(notice):
            self._status.report("interrupted", notice.kind, notice.deadline)

    def _send_deadline(self, notice: Notice) -> bool:
        """Send the coordinator the deadline of a notice; returns whether the configured policy sets a deadline."""
        deadline = self._node.rebalance.deadline(notice.kind, notice.deadline)
        if deadline is not None:
            self._channel.send(NodeNotice(kind=notice.kind, deadline=deadline))
        return deadline is not None

    def on_disconnect(self) -> None:
        """Record that the connection to the coordinator is lost."""
        self.worker.on_disconnect()
        if not self._retired.is_set():  # a retired node has closed the connection itself
            self._isolation.on_disconnect()
        if self._desk is not None:
            self._desk.on_disconnect()

    async def on_message(self, message: FromCoordinator) -> None:
        """Carry out an order of the coordinator."""
        match message:
            case Listed(listed=listed):
                self.unlisted.clear() if listed else self.unlisted.set()
                self._status.set_listed(listed)
            case Launched(launch=launch) if self._program_of is not None:
                self.worker.set_program(self._program_of(launch))
                await self._isolation.on_welcome(self._job)
            case LaunchAnswer() if self._desk is not None:
                self._desk.on_answer(message)
            case Workers(addresses=addresses):
                self._write_workers(addresses)
            case StartGroup() if self.base is not None and self.base.runs_ps_lite:
                await self.base.group.start(message)
            case StopGroup(generation=generation) if self.base is not None and self.base.runs_ps_lite:
                await self.base.group.stop(generation)
            case RestartWorker(pid=pid, reason=reason):
                await self.worker.restart(pid, reason)
            case CoolDown():
                await self.worker.cool_down(message.pid, message.seconds, message.given_up)
            case Retire(reason=reason) if self._program_of is not None:
                await self._wait_for_next_launch(reason)
            case Retire(reason=reason):
                self._request_retirement(reason)
            case _:
                log.warning("ignored an order that is not for this node", extra={"type": message.type})

    async def _wait_for_next_launch(self, reason: str) -> None:
        """Stop the worker and close the connection to the coordinator, since the job is over.

        The node receives the next launch from a later coordinator.
        """
        log.info("waiting for the next launch", extra={"reason": reason})
        await self.worker.wait_for_end(self._node.timing.finish_seconds)
        self.worker.set_program(None)
        await self.worker.on_welcome(self._job)
        if self.base is not None:
            await self.base.group.forget_groups()
        self._channel.end_connection()

    def _write_workers(self, addresses: Sequence[str]) -> None:
        """Write the files that list the cluster's nodes. An OSError is logged and not raised."""
        try:
            self._on_addresses(addresses)
        except OSError as error:
            log.warning("the workers file is not written", extra={"reason": str(error)})

    def write_control_file(self, access: Access) -> None:
        """Write the control file, from which the worker learns how to connect to the coordinator."""
        endpoint, identity = access.endpoint, self._node.identity
        control_file_content = ControlFile(
            cluster=identity.cluster,
            job=endpoint.job,
            instance_id=identity.instance_id,
            private_ip=identity.private_ip,
            url=endpoint.url,
            certificate=endpoint.certificate,
            token=access.token,
            mount=self._node.mount,
            slot=self._node.slot,
            slots=self._node.slots,
            identity=identity.signed,
            liveness_seconds=self._node.clocks.liveness,
            progress_seconds=self._node.clocks.progress,
        )
        user_account = self._node.account
        owner_ids = (user_account.uid, user_account.gid) if user_account else (-1, -1)
        write_atomically(self._node.control_file, control_file_content.to_json(), mode=0o600, owner=owner_ids)

    # ---- the end

    async def _retire_after_coordinator(self, base: BaseDuties) -> None:
        """Request the node's retirement when the coordinator on this node ends.

        The coordinator's own order to retire may be lost.
        """
        if base.coordinator is not None:
            await base.coordinator.finished.wait()
            self._request_retirement("the coordinator finished")

    def _request_retirement(self, reason: str) -> None:
        self._retirement_reason = self._retirement_reason or reason
        self._retired.set()

    async def shut_down(self) -> None:
        """Stop the worker and close this supervisor's connection to the coordinator, within a limited time."""
        await self._end_worker()
        self._channel.leave()

    async def _end_worker(self) -> None:
        await self.worker.wait_for_end(self._node.timing.finish_seconds)
        await self.worker.stop(self._node.timing.retire_grace_seconds)

    async def retire(self, reason: str) -> None:
        """Stop the worker and the ps-lite processes, and wait a limited time for this node's coordinator to end."""
        log.info("retiring", extra={"reason": reason})
        timing, coordinator = self._node.timing, self.base.coordinator if self.base is not None else None
        coordinator_runs_here = coordinator is not None and coordinator.retire()
        await asyncio.gather(self._end_worker(), *(supervisor.shut_down() for supervisor in self.other_supervisors))
        if self.base is not None:
            await self.base.group.stop_all()
        if coordinator is not None and coordinator_runs_here:
            limit_seconds = timing.coordinator_exit_seconds
            if self._node.results:  # the coordinator uploads them once all nodes have left, so this node leaves now
                self._channel.leave()
                limit_seconds += SCRIPTS_SECONDS + END_SECONDS
            try:
                async with timeout(limit_seconds):
                    await coordinator.finished.wait()
            except TimeoutError:
                log.error(
                    "the coordinator did not finish in time, it is stopped",
                    extra={"seconds": limit_seconds},
                )
