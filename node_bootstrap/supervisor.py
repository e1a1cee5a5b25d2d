"""Carries out the coordinator's orders on this host, and tells it what happens here."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from controller.contract import ControlFile, NodeReport
from node_bootstrap.config import Access
from node_bootstrap.files import write_atomically
from node_bootstrap.group import PsGroup
from node_bootstrap.identity import Identity
from node_bootstrap.isolation import Isolation
from node_bootstrap.layout import Layout
from node_bootstrap.master import CoordinatorKeeper
from node_bootstrap.notices import Notice
from node_bootstrap.pacing import Timing
from node_bootstrap.report import Reporter
from node_bootstrap.shipping import LogShipping
from node_bootstrap.worker import Worker
from training.clocks import DEFAULT, Clocks
from training.protocol import CoolDown, Listed, NodeHello, NodeNotice, RestartWorker, Retire, StartGroup, StopGroup, Welcome
from training.wire import FromCoordinator, FromNode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Post:
    """Where this supervisor stands."""

    identity: Identity
    attempt: int
    mount: str
    layout: Layout
    timing: Timing
    clocks: Clocks = DEFAULT


class Supervisor:
    """The `Receiver` of the control channel. `tell` and the parts are set by whoever wires them: they need one another."""

    def __init__(self, post: Post, reporter: Reporter, retired: asyncio.Future[str]) -> None:
        self._post, self._reporter, self._retired = post, reporter, retired
        self._notices: dict[str, Notice] = {}
        self.worker: Worker | None = None
        self.isolation: Isolation | None = None
        self.shipping: LogShipping | None = None
        self.group: PsGroup | None = None
        self.coordinator: CoordinatorKeeper | None = None
        self.tell = _nobody

    def hello(self) -> NodeHello:
        identity = self._post.identity
        return NodeHello(
            cluster=identity.cluster,
            instance_id=identity.instance_id,
            private_ip=identity.private_ip,
            identity=identity.signed,
            attempt=self._post.attempt,
            base=identity.base or self.group is not None,  # the tag may have come later
            worker_pid=self.worker.pid if self.worker else None,
        )

    def noticed(self, notice: Notice) -> None:
        """The machine will be taken: both the coordinator and the controller must know."""
        self._notices[notice.kind] = notice
        self.tell(NodeNotice(kind=notice.kind, deadline=notice.deadline))
        self.report("interrupted", notice.kind, notice.deadline)

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None:
        identity = self._post.identity
        self._reporter.set(
            NodeReport.model_validate(
                {
                    "cluster": identity.cluster,
                    "instance_id": identity.instance_id,
                    "private_ip": identity.private_ip,
                    "attempt": self._post.attempt,
                    "outcome": outcome,
                    "reason": reason[:2000],
                    "at": time.time(),
                    "deadline": deadline,
                    "identity": identity.signed,
                }
            )
        )

    def isolated(self, reason: str) -> None:
        """Say it until a coordinator acknowledges the node again."""
        self._reporter.listed(False)
        self.report("prepared", reason)

    # ---- the control channel's receiver

    async def welcomed(self, access: Access, welcome: Welcome) -> None:
        self.write_control_file(access)
        if self.shipping is not None:
            self.shipping.follow(welcome.job)
        if self.group is not None:
            for message in self.group.state():
                self.tell(message)
        for notice in self._notices.values():
            self.tell(NodeNotice(kind=notice.kind, deadline=notice.deadline))
        if self.isolation is not None:
            await self.isolation.welcomed(welcome.job)

    def lost(self) -> None:
        if self.worker is not None:
            self.worker.disconnected()
        if self.isolation is not None:
            self.isolation.lost()

    async def received(self, message: FromCoordinator) -> None:
        match message:
            case Listed(listed=listed):
                self._reporter.listed(listed)
            case StartGroup() if self.group is not None:
                await self.group.start(message)
            case StopGroup(generation=generation) if self.group is not None:
                await self.group.stop(generation)
            case RestartWorker(pid=pid, reason=reason) if self.worker is not None:
                await self.worker.restart(pid, reason)
            case CoolDown() if self.worker is not None:
                await self.worker.cool_down(message.pid, message.seconds, message.given_up)
            case Retire(reason=reason):
                if not self._retired.done():
                    self._retired.set_result(reason)
            case _:
                log.warning("ignored an order that is not for this node", extra={"type": message.type})

    def write_control_file(self, access: Access) -> None:
        """How the worker finds its coordinator; a running worker reads it again when its connection breaks."""
        endpoint, identity = access.endpoint, self._post.identity
        control = ControlFile(
            cluster=identity.cluster,
            job=endpoint.job,
            instance_id=identity.instance_id,
            private_ip=identity.private_ip,
            url=endpoint.url,
            certificate=endpoint.certificate,
            token=access.token,
            mount=self._post.mount,
            identity=identity.signed,
            liveness_seconds=self._post.clocks.liveness,
            progress_seconds=self._post.clocks.progress,
        )
        write_atomically(self._post.layout.control_file, control.to_json(), mode=0o600)

    async def coordinator_finished(self) -> None:
        """Where the coordinator runs, its end is the end of the job, also when its word to retire was lost."""
        if self.coordinator is not None:
            await self.coordinator.finished.wait()
            if not self._retired.done():
                self._retired.set_result("the coordinator finished")

    async def retire(self, reason: str) -> None:
        """Stop the worker and the ps-lite processes; on the master wait for the coordinator to end by itself. Bounded."""
        log.info("retiring", extra={"reason": reason})
        leads = self.coordinator is not None and self.coordinator.retire()
        if self.worker is not None:
            await self.worker.finish(self._post.timing.finish)
            await self.worker.stop(self._post.timing.grace)
        if self.group is not None:
            await self.group.stop_all()
        if self.coordinator is not None and leads:
            try:
                async with asyncio.timeout(self._post.timing.coordinator_exit):
                    await self.coordinator.finished.wait()
            except TimeoutError:
                log.error("the coordinator did not finish in time, it is stopped", extra={"seconds": self._post.timing.coordinator_exit})


def _nobody(message: FromNode) -> bool:
    """Stands in for the channel before there is one."""
    return False
