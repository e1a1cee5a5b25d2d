"""The coordinator process on the master node: the session's clock, sockets and files.

    python -m training.coordinator --cluster demo --instance-id i-... --host 10.0.0.5 --mount /myEFSvolume --num-workers 2

Exit code 0: the job is over (finished or failed, which the report says); anything else: start it again, it goes on where its journal ends.
One that another node has overtaken (`terms`) ends with 75 and says no more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import logging
import random
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

from controller.contract import CoordinatorEndpoint, JobReport
from controller.instance_identity import Keys, parse_keys
from training.admission import Gate
from training.certificate import Certificate, make_certificate
from training.clocks import Clocks
from training.control import ControlServer
from training.generation import Limits
from training.hosts import AwsHosts, Hosts, HostsError
from training.knowledge import PAUSE_SECONDS, Options
from training.layout import JobFolder, current_job_file
from training.ledger import EventLog
from training.orders import Announce, DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.progress import describe
from training.session import Session
from training.terms import Overtaken, TermJournal, read_journal

TICK_SECONDS = 0.1
TARGET_SECONDS = 0.7  # between reads of the target, times 1 to 1.4: at most once a second, not in step with other clusters
REPORT_SECONDS = 5.0  # a report at least this often: it is also the lease
FAREWELL_SECONDS = 15.0
CLAIM_SECONDS = 1.0  # between looks at the claim on the shared volume
PUBLISH_SECONDS = 3.0  # between looks at what the nodes are told: an overtaken coordinator may have published itself late
TEMPORARY_FAILURE = 75  # of sysexits.h
CLOSED = "closed"  # the journal's last record: the job is over, and the controller has been told
log = logging.getLogger("coordinator")


class Coordinator:
    """`keys` verify which instance a node is (`controller.instance_identity`); without any, its word is taken.

    `term` is that of the nomination; None: nobody else can hold this job. Raises Overtaken when another node holds it.
    Events go to the job's folder, and to the file `events` as well if one is given.
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
    ) -> None:
        self._hosts, self._host, self._instance_id, self._options = hosts, host, instance_id, options
        self._port, self._keys = port, keys
        self._journal, self._events = TermJournal(folder.ledger, instance_id, term), EventLog(folder.events, events)
        self._overtaken: Overtaken | None = None
        records = [*self._journal.records, *self._take_over(time.time())]
        self._session = Session.recovered(options, lambda: secrets.token_urlsafe(24), records, time.time())
        self._token = secrets.token_urlsafe(32)
        self._server = ControlServer(self._session, Gate(options.cluster, self._token, keys), self.carry_out)
        self._reported: JobReport | None = None
        self._reported_at = 0.0
        self._over = asyncio.Event()

    def _take_over(self, now: float) -> list[dict[str, Any]]:
        """The former coordinator's machine took a ps-lite server along: nobody goes on in that generation."""
        former, records = self._journal.taken_over, self._journal.records
        if former is None:
            return []
        number = max((record["number"] for record in records if record["kind"] == "generation"), default=0)
        record = {"kind": "restart", "generation": number, "reason": f"{self._instance_id} takes over from {former}", "at": now}
        self._journal.append(record)
        fields = {"instance": self._instance_id, "former": former, "generation": number, "at": now}
        self._events.append({"event": "takeover", **fields})
        log.warning("%s takes the job over from %s", self._instance_id, former)
        return [record]

    async def run(self) -> None:
        """Until the job is over and the last report is out. Raises Overtaken when another node has taken the job."""
        certificate = make_certificate(self._host, dt.datetime.now(dt.UTC))
        with contextlib.closing(self._journal), contextlib.closing(self._events):
            await self._serve(certificate)

    async def _serve(self, certificate: Certificate) -> None:
        async with self._server.listen(self._host, certificate.server_context(), self._options.clocks, self._port) as port:
            endpoint = CoordinatorEndpoint(
                cluster=self._options.cluster,
                job=self._options.job,
                instance_id=self._instance_id,
                url=f"wss://{self._host}:{port}",
                certificate=certificate.pem,
                published_at=time.time(),
            )
            await self._publish(endpoint)
            async with asyncio.TaskGroup() as tasks:
                loops = (self._tick(), self._watch_target(), self._report(), self._watch_claim(), self._watch_published(endpoint))
                background = [tasks.create_task(coroutine) for coroutine in loops]
                await self._over.wait()
                if self._overtaken is None:
                    await self._server.drain(FAREWELL_SECONDS)
                for task in background:
                    task.cancel()
            if self._overtaken is not None:
                raise self._overtaken
            await self._last_report()

    def carry_out(self, orders: list[Order]) -> None:
        """In order; nothing here blocks but the journal's fsync, which must come first. One that is overtaken orders nothing more."""
        for order in orders:
            if self._overtaken is not None:
                return
            match order:
                case Journal():
                    try:
                        self._journal.append(order.record)
                    except Overtaken as error:
                        self._give_up(error)
                case ToNode():
                    self._server.send_node(order.instance_id, order.message)
                case ToWorker():
                    self._server.send_worker(order.instance_id, order.message)
                case DropWorker():
                    self._server.drop_worker(order.instance_id, order.reason)
                case Announce():
                    self._events.append({"event": order.event, "at": time.time(), **order.fields})
                    if line := describe(order):
                        log.info("%s", line)
                case Over():
                    self._over.set()

    async def _publish(self, endpoint: CoordinatorEndpoint) -> None:
        delay = 0.5
        while True:
            try:
                await asyncio.to_thread(self._hosts.publish, endpoint, self._token)
            except HostsError as error:
                log.warning("%s; again in %.1f s", error, delay)
                await asyncio.sleep(delay)
                delay = min(10.0, delay * 2)
            else:
                log.info("coordinator of cluster %s, job %s, listens at %s", self._options.cluster, self._options.job, endpoint.url)
                log.info(
                    "nodes must prove which instance they are" if self._keys else "nodes need not prove which instance they are: no identity keys"
                )
                return

    def _give_up(self, error: Overtaken) -> None:
        self._overtaken = error
        self._over.set()

    async def _watch_claim(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._journal.check)
            except Overtaken as error:
                self._give_up(error)
            except OSError as error:
                log.warning("the claim on the job cannot be read: %s; looked at again", error)
            await asyncio.sleep(CLAIM_SECONDS)

    async def _watch_published(self, endpoint: CoordinatorEndpoint) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            try:
                present = await asyncio.to_thread(self._hosts.published)
                if present != endpoint:
                    await asyncio.to_thread(self._journal.check)
                    await self._publish(endpoint)
            except (HostsError, OSError) as error:
                log.warning("%s; looked at again", error)
            except Overtaken as error:
                self._give_up(error)

    async def _tick(self) -> None:
        while True:
            self.carry_out(self._session.tick(time.time()))
            await asyncio.sleep(TICK_SECONDS)

    async def _watch_target(self) -> None:
        failures = 0
        while True:
            try:
                target = await asyncio.to_thread(self._hosts.read_target)
                failures = 0
            except HostsError as error:
                failures += 1
                log.warning("%s; the present membership stands", error)
            else:
                if target is not None:
                    self.carry_out(self._session.new_target(target, time.time()))
            await asyncio.sleep(TARGET_SECONDS * (1 + random.random() * 0.4) * min(8, 2**failures))

    async def _report(self) -> None:
        """At once when something that the controller acts on changed, else at the lease's pace."""
        while True:
            report = self._next_report()
            if _decisive(report) != _decisive(self._reported) or time.monotonic() - self._reported_at > REPORT_SECONDS:
                try:
                    await asyncio.to_thread(self._hosts.report, report)
                    self._reported, self._reported_at = report, time.monotonic()
                except HostsError as error:
                    log.warning("%s; it is repeated", error)
                    await asyncio.sleep(1.0)
            await asyncio.sleep(0.05)

    async def _last_report(self) -> None:
        for delay in (0.5, 1, 2, 4, 8):
            try:
                await asyncio.to_thread(self._hosts.report, self._next_report())
                self._journal.append({"kind": CLOSED, "at": time.time()})
                return
            except HostsError as error:
                log.warning("%s; again in %.1f s", error, delay)
                await asyncio.sleep(delay)

    def _next_report(self) -> JobReport:
        now = time.time()
        self._session.sequence = max(self._session.sequence + 1, int(now * 1000))  # grows over restarts too
        return self._session.report(now)


def _decisive(report: JobReport | None) -> object:
    return report and (report.state, report.generation, report.revision, report.members, report.reason)


def open_job(mount: Path, cluster: str, now: float) -> tuple[str, float]:
    """The cluster's job that is not closed and when it started, or a new one. A closed job's name is never used again.

    One that has ended, and whose coordinator died before it could say so everywhere, is opened for just that.
    """
    file = current_job_file(mount, cluster)
    if file.exists():
        current = json.loads(file.read_text())
        journal = read_journal(JobFolder.of(mount, cluster, current["job"]).ledger)
        if not any(record["kind"] == CLOSED for record in journal):
            return current["job"], current["started_at"]
    job = dt.datetime.fromtimestamp(now, dt.UTC).strftime("job-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".new")
    partial.write_text(json.dumps({"job": job, "started_at": now}))
    partial.rename(file)
    return job, now


def commits_below(directory: Path | None, cluster: str, job: str) -> str | None:
    """The folder of this job's commits below a person's `--checkpoint-dir`: jobs may share it."""
    return None if directory is None else str(directory.resolve() / cluster / job)


def _keys(text: str) -> Keys:
    try:
        return parse_keys(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_clocks(parser: argparse.ArgumentParser) -> None:
    """The options that bound every wait of a job; `Clocks` checks them."""
    default = Clocks()
    group = parser.add_argument_group("bounds of every wait, in seconds")
    group.add_argument(
        "--liveness-seconds",
        type=float,
        default=default.liveness,
        help="without an answer for so long a process counts as hung; pings and the ends of what is cut off follow from it",
    )
    group.add_argument(
        "--progress-seconds",
        type=float,
        default=default.progress,
        help="a living job that makes no step, or a worker that does not connect after its start, counts as stuck after so long",
    )
    group.add_argument("--pause-seconds", type=float, default=PAUSE_SECONDS, help="a job below its minimum of workers fails after so long")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.coordinator", description="Coordinates the training job of one cluster.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--instance-id", required=True)
    parser.add_argument("--host", required=True, help="this node's private address, where nodes and workers connect")
    parser.add_argument("--mount", required=True, type=Path, help="the volume that all nodes share")
    parser.add_argument("--num-workers", type=int, default=1, help="workers that the first generation waits for")
    parser.add_argument("--min-workers", type=int, default=1)
    parser.add_argument("--max-workers", type=int, default=64)
    parser.add_argument("--term", type=int, default=0, help="of this node's nomination, from the target; 0: it is tagged as master")
    parser.add_argument("--segment-steps", type=int, help="also let membership change every so many steps in mid-epoch")
    parser.add_argument("--boundary", choices=["epoch", "segment"], default="epoch", help="where changes without a deadline are made")
    parser.add_argument("--events", type=Path, help="write what happens there too, a JSON object a line")
    parser.add_argument("--checkpoint-dir", type=Path, help="where commits are kept, on a volume that all nodes share; default: on the mount")
    identity_keys = "public keys (PEM, or its body) whose signature on an instance identity document counts; without any, nodes are believed"
    parser.add_argument("--identity-keys", type=_keys, default=(), help=identity_keys)
    add_clocks(parser)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.WARNING)
    if not args.mount.is_dir():
        parser.error(f"--mount {args.mount} is not a directory")
    try:
        clocks = Clocks(args.liveness_seconds, args.progress_seconds)
    except ValueError as error:
        parser.error(str(error))
    job, started_at = open_job(args.mount, args.cluster, time.time())
    options = Options(
        cluster=args.cluster,
        job=job,
        started_at=started_at,
        limits=Limits(args.min_workers, args.max_workers),
        workers=args.num_workers,
        segment_steps=args.segment_steps,
        boundary=args.boundary,
        checkpoint_dir=commits_below(args.checkpoint_dir, args.cluster, job),
        clocks=clocks,
        pause_seconds=args.pause_seconds,
    )

    async def serve() -> None:
        folder, hosts = JobFolder.of(args.mount, args.cluster, job), AwsHosts(args.cluster)
        coordinator = Coordinator(options, folder, hosts, args.host, args.instance_id, keys=args.identity_keys, term=args.term, events=args.events)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await coordinator.run()

    try:
        asyncio.run(serve())
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 128 + signal.SIGTERM
    except Overtaken as error:
        log.warning("%s; this coordinator ends", error)
        return TEMPORARY_FAILURE
    return 0


if __name__ == "__main__":
    sys.exit(main())
