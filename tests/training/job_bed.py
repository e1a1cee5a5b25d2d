"""A training job on this machine without any cloud: the real coordinator and workers, hosts as a list in memory,
supervisors of a few lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import ControlFile, CoordinatorEndpoint, Target
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.local.pace import patient
from dyntrain.training.audit import Audit, audit_directory
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.host.forkserver import Blank
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import read_lines
from dyntrain.training.protocol import channel
from dyntrain.training.protocol.clocks import DEFAULT, Clocks
from dyntrain.training.protocol.messages import Refused
from dyntrain.training.protocol.node_messages import (
    GroupFailed,
    GroupReady,
    Listed,
    NodeHello,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    Welcome,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from pydantic import SecretStr
from shared_forks import fork_server
from waiting import wait_for
from websockets.exceptions import WebSocketException

BED = {"cluster": "bed", "job": "job-1"}
HOLD = "hold"  # a script that is told of it goes slowly while this file is there


def instance(letter: str) -> str:
    return f"i-{ord(letter):08x}"


class ListedHosts:
    """Hosts in memory: what a test sets is the target, what the coordinator says is kept."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self.endpoint: CoordinatorEndpoint | None = None
        self.token = ""
        self.reports: list[JobReport] = []

    def read_target(self) -> Target | None:
        return self.target

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self.token, self.endpoint = token, endpoint

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        return self.endpoint

    def report(self, report: JobReport) -> None:
        self.reports.append(report)


class Supervisor:
    """A node: blanks and a worker, started and killed as the coordinator says."""

    def __init__(self, bed: JobBed, name: str, base: bool, ip: str) -> None:
        self.bed, self.name, self.base, self.ip = bed, name, base, ip
        self.worker: subprocess.Popen[bytes] | None = None
        self.blanks: list[Blank] = []
        self.groups: dict[int, list[Blank]] = {}
        self.pids: list[int] = []
        self._connection: Any = None
        self.task: asyncio.Task[None] | None = None
        self.retired = False
        self.memory = SafeMemory()
        self._offer: asyncio.Task[None] | None = None
        self._offering = asyncio.Lock()
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        while not self.retired:
            endpoint = self.bed.hosts.endpoint
            if endpoint is not None:
                with contextlib.suppress(OSError, TimeoutError, Exception):
                    await self._session(endpoint)
            await asyncio.sleep(0.1)

    async def _session(self, endpoint: CoordinatorEndpoint) -> None:
        async with await channel.connect(endpoint.url, endpoint.certificate) as connection:
            self._connection = connection
            running = self.worker.pid if self.worker is not None and self.worker.poll() is None else None
            hello = NodeHello(
                cluster="bed", instance_id=self.name, private_ip=self.ip, attempt=1, base=self.base, worker_pid=running
            )
            await channel.greet(connection, hello, SecretStr(self.bed.hosts.token))
            if self.base:
                self._offer = asyncio.create_task(self._offer_group())
            watch = asyncio.create_task(self._watch_children())
            try:
                async for text in connection:
                    await self._take(channel.decode(text), endpoint)
            finally:
                watch.cancel()

    async def promote(self) -> None:
        self.base = True
        self._offer = asyncio.create_task(self._offer_group())

    async def die(self) -> None:
        for task in filter(None, (self.task, self._offer)):
            task.cancel()
            await asyncio.wait([task])
        if self.worker is not None:
            self.worker.kill()
        await self.stop_blanks()

    async def stop_blanks(self) -> None:
        for blank in [*self.blanks, *(blank for group in self.groups.values() for blank in group)]:
            await blank.stop()

    async def _say(self, message: Any) -> None:
        await self._connection.send(channel.encode(message))

    async def _offer_group(self) -> None:
        async with self._offering:
            while len(self.blanks) < 2:
                blank = await fork_server().fork()
                try:
                    assert await blank.started(), "no ps-lite process could be started"
                except asyncio.CancelledError:
                    await blank.stop()
                    raise
                self.blanks.append(blank)
        with contextlib.suppress(WebSocketException):  # the next connection offers them again
            await self._say(GroupReady(scheduler_port=free_port(self.ip), blanks=len(self.blanks)))

    async def _take(self, order: Any, endpoint: CoordinatorEndpoint) -> None:
        match order:
            case Welcome() | Listed():
                self._write_control_file(endpoint)
                if self.worker is None:
                    await self._start_worker()
            case StartGroup() if order.generation not in self.groups:
                for process in order.processes:
                    blank = self.blanks.pop(0)
                    await blank.give(process.role, {**process.environment, "DMLC_NODE_HOST": self.ip})
                    self.groups.setdefault(order.generation, []).append(blank)
                    self._watchers.append(asyncio.create_task(self._watch_group(order.generation, blank)))
                self._offer = asyncio.create_task(self._offer_group())
            case StopGroup():
                for generation in [g for g in self.groups if g <= order.generation]:
                    for blank in self.groups.pop(generation):
                        await blank.stop()
            case RestartWorker():
                if self.worker is not None and (
                    self.worker.pid == order.pid
                    or (self.worker.poll() is not None and (order.pid or self.worker.poll() == 0))
                ):
                    self.worker.kill()
                    await self._start_worker()
            case Retire():
                self.retired = True
                await self._connection.close()
            case Refused():
                raise RuntimeError(order.reason)

    @property
    def _control(self) -> Path:
        return self.bed.folder / f"control-{self.name}.json"

    def _write_control_file(self, endpoint: CoordinatorEndpoint) -> None:
        """At each welcome: a coordinator that came back has another address."""
        text = ControlFile(
            cluster="bed",
            job=endpoint.job,
            instance_id=self.name,
            private_ip=self.ip,
            url=endpoint.url,
            certificate=endpoint.certificate,
            token=self.bed.hosts.token,
            mount=str(self.bed.folder),
            liveness_seconds=self.bed.clocks.liveness,
            progress_seconds=self.bed.clocks.progress,
        ).to_json()
        self._control.with_suffix(".new").write_text(text)
        self._control.with_suffix(".new").rename(self._control)

    async def _start_worker(self) -> None:
        environment = {"DYNTRAIN_CONTROL_FILE": str(self._control), **self.memory.environment}
        log = f"worker-{self.name}.log"
        self.worker = self.bed.start(
            self.bed.command, log=log, environment=environment, pass_fds=self.memory.descriptors
        )
        self.pids.append(self.worker.pid)
        await self._say(WorkerStarted(pid=self.worker.pid))

    async def _watch_children(self) -> None:
        reported: set[int] = set()
        while True:
            if self.worker is not None and (code := self.worker.poll()) is not None and self.worker.pid not in reported:
                reported.add(self.worker.pid)
                await self._say(WorkerExited(pid=self.worker.pid, code=code, reason=f"exit code {code}"))
            await asyncio.sleep(0.05)

    async def _watch_group(self, generation: int, blank: Blank) -> None:
        if await blank.ended():
            return
        while generation in self.groups:
            with contextlib.suppress(WebSocketException):  # said on the next connection
                await self._say(GroupFailed(generation=generation, reason=f"process {blank.pid} ended"))
                return
            await asyncio.sleep(0.05)


class JobBed:
    """Runs an event loop on a thread of its own; tests stay plain functions. Everything it starts dies in `close`."""

    def __init__(self, folder: Path, command: list[str], workers: int = 2, **options: Any) -> None:
        self.folder, self.command = folder, command
        self._hold = folder / HOLD
        self._hold.touch()
        self.hosts = ListedHosts()
        self.job = JobFolder.of(folder, **BED)
        self._volume = options.pop("volume", None)
        self._options = {"limits": Limits(1, 8), "workers": workers, **options}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.supervisors: dict[str, Supervisor] = {}
        self.supervisor: type[Supervisor] = Supervisor
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._coordinator: asyncio.Task[None] | None = None
        self._revision = 0
        self.start_coordinator()

    @property
    def clocks(self) -> Clocks:
        return self._options.get("clocks", DEFAULT)

    def start_coordinator(self) -> None:
        async def start() -> None:
            options = Options(**BED, started_at=1.0, **self._options)
            self._coordinator = asyncio.create_task(
                Coordinator(options, self.job, self.hosts, "127.0.0.1", instance("A"), volume=self._volume).run()
            )

        self.call(start())

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patient(30))

    def start(
        self, argv: list[str], log: str = "ps.log", environment: dict[str, str] | None = None, **kwargs: Any
    ) -> subprocess.Popen[bytes]:
        out = (self.folder / log).open("ab")
        kwargs = {"stdout": out, "stderr": out, **kwargs}
        env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        process = subprocess.Popen(argv, env=env, start_new_session=True, **kwargs)
        self._processes.append(process)
        return process

    def add_node(self, letter: str, base: bool = False) -> None:
        name = instance(letter)
        self.supervisors[name] = self.supervisor(self, name, base, f"127.0.77.{ord(letter)}")

        async def start() -> None:
            self.supervisors[name].task = asyncio.create_task(self.supervisors[name].run())

        self.call(start())

    def want(self, letters: str, replacing: str = "") -> None:
        """`replacing` "BC": the base node B is given up for C."""
        self._revision += 1
        wanted = Target.of(self._revision, tuple(instance(letter) for letter in letters))
        pairs = {instance(replacing[0]): instance(replacing[1])} if replacing else {}
        self.hosts.target = wanted.model_copy(update={"replacing": pairs})

    def obeyed(self) -> bool:
        """Whether the coordinator knows what was wanted last."""
        return bool(self.hosts.reports) and self.hosts.reports[-1].revision == self._revision

    def promote(self, letter: str) -> None:
        """An elastic node becomes a base node, while it is connected."""
        self.call(self.supervisors[instance(letter)].promote())

    def lose_node(self, letter: str) -> None:
        """The machine is gone, with all its processes."""
        self.call(self.supervisors[instance(letter)].die())

    def kill_worker(self, letter: str, number: int = signal.SIGKILL) -> int:
        worker = self.supervisors[instance(letter)].worker
        assert worker is not None
        os.kill(worker.pid, number)
        return worker.pid

    def kill_server(self) -> None:
        """One of the present generation; on a slow machine not every base node had one ready."""
        groups = [group for node in self.supervisors.values() for group in node.groups.items()]
        os.kill(max(groups, key=lambda group: group[0])[1][-1].pid, signal.SIGKILL)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        return [event for event in read_lines(self.job.events) if name in (None, event["event"])]

    def wait_for(self, what: Callable[[], Any], seconds: float = 60.0, message: str = "") -> Any:
        def describe() -> str:
            tail = "\n".join(str(event) for event in self.events()[-15:])
            return f"{message or what}; last events:\n{tail}"

        return wait_for(what, seconds, describe)

    def saw(self, event: str, letter: str) -> Callable[[], bool]:
        """For `wait_for`: whether the coordinator announced the event of that node."""
        return lambda: any(seen["instance"] == instance(letter) for seen in self.events(event))

    def begin(self, base: str = "AB") -> None:
        """Base nodes that train."""
        for letter in base:
            self.add_node(letter, base=True)
        self.want(base)
        for letter in base:
            self.wait_for(self.saw("joined", letter), 60, "the first generation")

    def wait_for_epoch(self, epoch: int, seconds: float = 60.0) -> dict[str, Any]:
        def find_segment() -> dict[str, Any] | None:
            return next((event for event in self.events("segment") if event["to"]["epoch"] >= epoch), None)

        return self.wait_for(find_segment, seconds, f"the end of epoch {epoch - 1}")

    def finish(self, seconds: float = 110.0) -> None:
        """Let the job run to its end. Until then its steps are slow, so that what a test does falls into a running job
        on any machine.
        """
        self._hold.unlink(missing_ok=True)
        assert self._coordinator is not None
        self.wait_for(self._coordinator.done, seconds, "the job's end")
        self._coordinator.result()

    def audit(self) -> Audit:
        return audit_directory(self.job.ledger)

    def close(self) -> None:
        """Everything dies at once, as if the machines lost their power. Safe to call twice."""
        if self._loop.is_closed():
            return

        async def stop() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=patient(5)) if tasks else None
            for node in self.supervisors.values():
                await node.stop_blanks()

        self.call(stop())
        for node in self.supervisors.values():
            node.memory.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(patient(10))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(5))
        self._loop.close()


def free_port(host: str) -> int:
    """Below the ephemeral range, so that no outgoing connection sits on it by chance. A test that trained in this
    process has seeded `random`, as others have in theirs: they would all try the same ports.
    """
    while True:
        port = random.SystemRandom().randint(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
