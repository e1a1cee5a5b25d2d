"""The coordinator process on the master node: clock, sockets and files for the session."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from dyntrain.controller.contract.instance_identity import Keys
from dyntrain.controller.contract.messages import CoordinatorEndpoint, SignedDocument
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.coordinator.control import ControlServer
from dyntrain.training.coordinator.hosts import Hosts, HostsError
from dyntrain.training.coordinator.mirror import WorkerListFiles
from dyntrain.training.coordinator.outbox import Outbox
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.coordinator.reach import UnreachableResources
from dyntrain.training.coordinator.results import ResultsUploader
from dyntrain.training.coordinator.terms import Overtaken, TermJournal
from dyntrain.training.events import Takeover
from dyntrain.training.journal import CommitWritten, Entry, GenerationSettled, JobClosed, JobResumed, Restarted
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import EventLog, read_events
from dyntrain.training.protocol.admission import HelloChecker
from dyntrain.training.protocol.certificate import Certificate, make_certificate
from dyntrain.training.protocol.node_messages import Workers
from dyntrain.training.protocol.results import SCRIPTS_SECONDS
from dyntrain.training.records import Unreadable
from dyntrain.training.session.chronicle import Chronicle
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, StopCoordinator, ToNode, ToWorker
from dyntrain.training.session.session import Session

TICK_SECONDS = 0.1  # between checks of the session's deadlines
TARGET_SECONDS = 0.7  # between reads of the target, times 1 to 1.4 at random, so that clusters read at different times
REPORT_SECONDS = 5.0  # maximum between two reports, which also show that this process is alive
FAREWELL_SECONDS = 15.0  # time for nodes and workers to disconnect after the job
ADDRESSES_SECONDS = 0.5  # between updates of the nodes' addresses on all nodes
CLAIM_SECONDS = 1.0  # between checks of the claim on the shared volume
PUBLISH_SECONDS = 3.0  # between checks of the published endpoint, which an overtaken coordinator may replace late
TARGET, ADDRESS, BUS = "its target", "the parameter with its address", "the event bus"  # resources, in messages
log = logging.getLogger("coordinator")


class Coordinator:
    """The coordinator of one training job.

    `keys` verify on which instance a node runs (`dyntrain.controller.contract.instance_identity`). Without `keys`, the
    instance id that a node claims is trusted. `term` is the number of the nomination for which this node runs the
    coordinator, or None if no other node can run it. Raises Overtaken if another node holds the job. `identity` proves
    to the controller which instance sends the reports.

    Events are written to a file in the job's folder, and also to the file `events` if given. The files that list the
    training workers are written in the directory of the launch, or in `mirror` without a launch. If `mirror` is None,
    the files that list the workers are not written. `uploads` is the command that uploads results on request
    (`ResultsUploader`); if None, the results stay on the shared volume. `resumes` says that a user resumes an
    interrupted or failed job, of which no process is left.
    """

    def __init__(
        self,
        options: Options,
        folder: JobFolder,
        hosts: Hosts,
        host: str,
        instance_id: str,
        port: int = 0,
        keys: Keys = (),
        term: int | None = None,
        events: Path | None = None,
        identity: SignedDocument | None = None,
        volume: Executor | None = None,
        mirror: Path | None = None,
        uploads: Sequence[str] | None = None,
        resumes: bool = False,
    ) -> None:
        self._identity, self._mirror = identity, mirror
        self._volume = volume or ThreadPoolExecutor(1, "volume")
        self._hosts, self._host, self._instance_id, self._options = hosts, host, instance_id, options
        self._port, self._keys = port, keys
        self._journal, self._events = TermJournal(folder.ledger, instance_id, term), EventLog(folder.events, events)
        self._chronicle = _read_chronicle(folder.events)
        self._overtaken: Overtaken | None = None
        journal_entries = [
            *self._journal.entries,
            *self._take_over(time.time()),
            *(self._resume_job(time.time()) if resumes else ()),
        ]
        self._session = Session.restore(options, lambda: secrets.token_urlsafe(24), journal_entries, time.time())
        self._token = secrets.token_urlsafe(32)
        self._server = ControlServer(
            self._session, options.job, HelloChecker(options.cluster, self._token, keys), self.carry_out
        )
        self._reported: JobReport | None = None
        self._reported_at = 0.0
        self._reach = UnreachableResources()
        self._over = asyncio.Event()
        self._results = ResultsUploader(uploads, lambda event: self.carry_out([Announce(event)])) if uploads else None
        self._outbox = Outbox(self._volume, self._journal.append, self._events.append, self._carry_out)

    def _take_over(self, now: float) -> list[Entry]:
        """Restart the job if the last coordinator ran on another node, as the ps-lite server of that node is lost.

        Returns the journal entries that record the restart.
        """
        former_holder, instance_id = self._journal.taken_over, self._instance_id
        if former_holder is None:
            return []
        generation_numbers = (entry.number for entry in self._journal.entries if isinstance(entry, GenerationSettled))
        last_generation = max(generation_numbers, default=0)
        restart_entry = Restarted(
            generation=last_generation, reason=f"{instance_id} takes over from {former_holder}", at=now
        )
        self._journal.append(restart_entry)
        self._events.append(
            takeover_event := Takeover(instance=instance_id, former=former_holder, generation=last_generation, at=now)
        )
        self._chronicle.record_event(takeover_event)
        log.warning("%s takes the job over from %s", instance_id, former_holder)
        return [restart_entry]

    def _resume_job(self, now: float) -> list[Entry]:
        self._journal.append(resume_entry := JobResumed(at=now))
        return [resume_entry]

    @property
    def session(self) -> Session:
        return self._session

    async def run(self) -> None:
        """Run the coordinator until the job is over and the last report is sent.

        Raises Overtaken if another node has taken the job over.
        """
        certificate = make_certificate(self._host, dt.datetime.now(dt.UTC))
        with contextlib.closing(self._journal), contextlib.closing(self._events):
            try:
                await self._serve(certificate)
            finally:
                await asyncio.to_thread(self._volume.shutdown)

    async def _serve(self, certificate: Certificate) -> None:
        async with self._server.listen(
            self._host, certificate.server_context(), self._options.clocks, self._port
        ) as port:
            endpoint = CoordinatorEndpoint(
                cluster=self._options.cluster,
                job=self._options.job,
                instance_id=self._instance_id,
                url=f"wss://{self._host}:{port}",
                certificate=certificate.pem,
                published_at=time.time(),
            )
            async with asyncio.TaskGroup() as tasks:
                # tasks that start before the endpoint is published, which may take long
                background_tasks = [
                    tasks.create_task(coroutine) for coroutine in (self._send_reports(), self._watch_claim())
                ]
                await self._publish_endpoint(endpoint)
                endless_loops = (
                    self._write_decisions(),
                    self._tick(),
                    self._watch_target(),
                    self._send_addresses(),
                    self._list_workers(self._mirror),
                    self._watch_endpoint(endpoint),
                    *([self._results.run()] if self._results is not None else []),
                )
                background_tasks += [tasks.create_task(coroutine) for coroutine in endless_loops]
                await self._over.wait()
                if self._overtaken is None:
                    # A node disconnects when its script has ended, which may save its model after the last epoch; nodes
                    # that wait for the next launch stay connected.
                    waits_for_scripts = self._results is not None and not self._options.waits
                    await self._server.drain(SCRIPTS_SECONDS if waits_for_scripts else FAREWELL_SECONDS)
                    await self._finish_results()
                for task in background_tasks:
                    task.cancel()
            if self._overtaken is not None:
                raise self._overtaken
            await self._send_last_report()

    def carry_out(self, orders: list[Order]) -> None:
        """Carry out `orders` after all earlier orders.

        Drop `orders` if another coordinator has taken the job over.
        """
        if self._overtaken is None:
            self._outbox.put(orders)
            if self._results is not None and any(_ends_an_epoch(order) for order in orders):
                self._results.request_upload()

    async def _finish_results(self) -> None:
        if self._results is not None:
            await self._results.finish_uploads()

    async def _write_decisions(self) -> None:
        try:
            await self._outbox.run()
        except Overtaken as error:
            self._end_as_overtaken(error)

    def _carry_out(self, order: Order) -> None:
        match order:
            case ToNode():
                self._server.send_node(order.instance_id, order.message)
            case ToWorker():
                self._server.send_worker(order.instance_id, order.message)
            case DropWorker():
                self._server.drop_worker(order.instance_id, order.pid, order.reason)
            case Announce():
                self._outbox.write_event(order.event)
                self._chronicle.record_event(order.event)
                log.info("%s", describe(order.event))
            case StopCoordinator():
                self._over.set()

    async def _publish_endpoint(self, endpoint: CoordinatorEndpoint) -> None:
        delay_seconds = 0.5
        while self._overtaken is None:
            try:
                await asyncio.to_thread(self._hosts.publish, endpoint, self._token)
            except HostsError as error:
                log.warning("%s; again in %.1f s", self._reach.add_failure(ADDRESS, error, time.time()), delay_seconds)
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(10.0, delay_seconds * 2)
            else:
                self._reach.clear_failure(ADDRESS)
                log.info(
                    "coordinator of cluster %s, job %s, listens at %s",
                    self._options.cluster,
                    self._options.job,
                    endpoint.url,
                )
                log.info(
                    "nodes must prove which instance they are"
                    if self._keys
                    else "nodes need not prove which instance they are: no identity keys"
                )
                return

    def _end_as_overtaken(self, error: Overtaken) -> None:
        self._overtaken = error
        self._outbox.drop_orders()
        self._over.set()

    async def _watch_claim(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._journal.check_claim)
            except Overtaken as error:
                self._end_as_overtaken(error)
            except OSError as error:
                log.warning("the claim on the job cannot be read, and will be read again: %s", error)
            await asyncio.sleep(CLAIM_SECONDS)

    async def _watch_endpoint(self, endpoint: CoordinatorEndpoint) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            try:
                published_endpoint = await asyncio.to_thread(self._hosts.read_endpoint)
                self._reach.clear_failure(ADDRESS)
                if published_endpoint != endpoint:
                    await asyncio.to_thread(self._journal.check_claim)
                    await self._publish_endpoint(endpoint)
            except HostsError as error:
                log.warning("%s; it will be read again", self._reach.add_failure(ADDRESS, error, time.time()))
            except OSError as error:
                log.warning("%s; it will be read again", error)
            except Overtaken as error:
                self._end_as_overtaken(error)

    async def _tick(self) -> None:
        last_tick = time.monotonic()
        while True:
            now = time.monotonic()
            if self._outbox.is_stalled:
                self._session.extend_deadlines(now - last_tick)
            else:
                self.carry_out(self._session.tick(time.time()))
            last_tick = now
            await asyncio.sleep(TICK_SECONDS)

    async def _watch_target(self) -> None:
        failed_reads = 0
        while True:
            try:
                target = await asyncio.to_thread(self._hosts.read_target)
                failed_reads = 0
                self._reach.clear_failure(TARGET)
            except HostsError as error:
                failed_reads += 1
                error_text = self._reach.add_failure(TARGET, error, time.time())
                log.warning("%s; the present membership stays in force", error_text)
            else:
                if target is not None:
                    self.carry_out(self._session.new_target(target, time.time()))
            await asyncio.sleep(TARGET_SECONDS * (1 + random.random() * 0.4) * min(8, 2**failed_reads))

    async def _send_addresses(self) -> None:
        while True:
            addresses = self._session.addresses(self._instance_id)
            if addresses is not None:
                self._server.send_addresses(Workers(addresses=addresses))
            await asyncio.sleep(ADDRESSES_SECONDS)

    async def _list_workers(self, directory: Path | None) -> None:
        """Keep the files that list the training workers up to date, in a separate thread, as the volume may hang."""
        if directory is None:
            return
        worker_lists, job, executor = WorkerListFiles(), self._session.job, ThreadPoolExecutor(1, "mirror")
        while True:
            if job.launch is not None or not job.options.waits:
                folder = directory if job.launch is None else Path(job.launch.directory)
                addresses = dict(job.roster.addresses)
                update_arguments = (folder, job.report(), addresses, addresses.get(self._instance_id, ""))
                await asyncio.get_running_loop().run_in_executor(executor, worker_lists.update, *update_arguments)
            await asyncio.sleep(ADDRESSES_SECONDS)

    async def _send_reports(self) -> None:
        """Send the controller a report every `REPORT_SECONDS`, and at once after each important change."""
        while self._overtaken is None:
            report = self._next_report()
            report_changed = _decisive_fields(report) != _decisive_fields(self._reported)
            if report_changed or time.monotonic() - self._reported_at > REPORT_SECONDS:
                try:
                    await asyncio.to_thread(self._hosts.report, self._add_history(report))
                    self._reported, self._reported_at = report, time.monotonic()
                    self._reach.clear_failure(BUS)
                except HostsError as error:
                    log.warning("%s; the report will be repeated", self._reach.add_failure(BUS, error, time.time()))
                    await asyncio.sleep(1.0)
            await asyncio.sleep(0.05)

    async def _send_last_report(self) -> None:
        for delay_seconds in (0.5, 1, 2, 4, 8):
            try:
                last_report = self._add_history(self._next_report()).model_copy(update={"closed": True})
                await asyncio.to_thread(self._hosts.report, last_report)
                close_entry = JobClosed(at=time.time())
                await asyncio.get_running_loop().run_in_executor(self._volume, self._journal.append, close_entry)
                return
            except HostsError as error:
                log.warning("%s; again in %.1f s", error, delay_seconds)
                await asyncio.sleep(delay_seconds)

    def _next_report(self) -> JobReport:
        """Return the next job report for the controller.

        While a decision is not written to the shared volume yet, the last report is repeated, because the controller
        acts on reports. After the job's end, the last report is repeated until the job's results are uploaded; after
        the upload, the end is reported.
        """
        report = self._session.report(time.time())
        upload_pending = self._results is not None and not self._results.over and report.state in ("finished", "failed")
        if self._reported is not None and (self._outbox.is_stalled or upload_pending):
            return self._reported.model_copy(update={"sequence": report.sequence})
        sender_fields = {"instance_id": self._instance_id, "private_ip": self._host, "identity": self._identity}
        return report.model_copy(update={**sender_fields, "unreachable": self._reach.unreachable})

    def _add_history(self, report: JobReport) -> JobReport:
        """Add the job's progress and history to a report before the report is sent.

        A change of progress or history alone does not cause a report.
        """
        now, done_fraction = time.time(), self._session.job.done_fraction
        active_workers = sum(member.active for member in report.members)
        self._chronicle.record_progress(
            now, done_fraction, report.epoch, report.step, active_workers, report.samples_per_second
        )
        added_fields = {"progress": self._chronicle.progress(done_fraction, now), "history": self._chronicle.history()}
        return report.model_copy(update=added_fields)


def _read_chronicle(file: Path) -> Chronicle:
    """Read the job's history from the events that earlier coordinators wrote.

    If the events are unreadable, the history begins anew, and nothing else of the job is lost.
    """
    try:
        return Chronicle.from_events(read_events(file))
    except (Unreadable, OSError) as error:
        log.warning("the job's history begins anew: %s", error)
        return Chronicle()


def _ends_an_epoch(order: Order) -> bool:
    """Whether the order records a commit at an epoch's end; such a record is the epoch's last journal entry."""
    return isinstance(order, Journal) and isinstance(order.entry, CommitWritten) and order.entry.position.offset == 0


def _decisive_fields(report: JobReport | None) -> object:
    if report is None:
        return None
    members = [(member.instance_id, member.rank, member.active) for member in report.members]
    return (report.state, report.generation, report.revision, members, report.reason)
