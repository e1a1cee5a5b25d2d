"""A node of a launched job: starts the worker and the ps-lite processes of this host as the coordinator says.

    python -m training.nodes        (started by `training.launch`, here or through ssh)

Standard input brings one JSON line (`NodePost`, with the token: it is never on a command line), then stays open: its end means that the launcher
is gone, and everything here ends. Children die with this process, and the process above it lets nothing outlive it (`node_bootstrap.reaper`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from controller.contract import ControlFile
from node_bootstrap.parentage import descendants, die_with_parent, kill_all
from node_bootstrap.reaper import run_below
from training import channel
from training.clocks import Clocks
from training.forkserver import Blank, ForkServerLine
from training.protocol import (
    CoolDown,
    GroupFailed,
    GroupReady,
    Listed,
    NodeHello,
    Refused,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    Welcome,
    WorkerExited,
    WorkerStarted,
)
from training.safe_memory import SafeMemory
from training.standby import StandbyLine
from training.wire import FromCoordinator, FromNode

MAX_LINE = 256 * 1024
READY_SECONDS = 120.0  # for the fork server to import MXNet, on a machine that is busy
GRACE_SECONDS = 5.0
SPARE_SECONDS = 3.0  # before a warm spare is started: the worker gets the processor first
RETRY_SECONDS = 0.5
log = logging.getLogger("node")


class NodePost(BaseModel):
    """What a node is told by its launcher."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    job: str
    instance_id: str
    ip: str
    url: str
    certificate: str
    token: SecretStr
    mount: str
    base: bool
    serves: bool  # whether this base host offers ps-lite processes
    warm_spares: int = 0
    liveness_seconds: float
    progress_seconds: float
    command: tuple[str, ...]
    worker_environment: dict[str, str] = {}
    server_environment: dict[str, str] = {}

    def to_json(self) -> str:
        """The token in the clear: for the pipe to the node only."""
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})


async def start(command: Sequence[str], environment: dict[str, str], inherited: Sequence[int] = ()) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),
        pass_fds=inherited,
    )


async def stop(process: asyncio.subprocess.Process, grace: float = 0.0) -> None:
    """Ask (when there is a grace), then kill, with all that it started, whatever group that is in. Returns within grace + GRACE_SECONDS."""
    below = descendants(process.pid) if process.returncode is None else []  # else the number may be somebody else's
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE_SECONDS)):
        if process.returncode is None and seconds:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await process.wait()
    kill_all(below)


class Node:
    def __init__(self, post: NodePost, folder: Path) -> None:
        self._post, self._control = post, folder / "control.json"
        self._connection: ClientConnection | None = None
        self._worker: asyncio.subprocess.Process | None = None
        self._forks: tuple[asyncio.subprocess.Process, ForkServerLine] | None = None
        self._blanks: list[Blank] = []
        self._groups: dict[int, list[Blank]] = {}
        self._spares: list[tuple[asyncio.subprocess.Process, StandbyLine]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing, self._sparing = asyncio.Lock(), asyncio.Lock()
        self._memory = SafeMemory()
        self._listed = True
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Until the job is over for this host."""
        post = self._post
        shared = {"cluster", "job", "instance_id", "url", "certificate", "token", "mount", "liveness_seconds", "progress_seconds"}
        control = ControlFile(**post.model_dump(include=shared), private_ip=post.ip)
        self._control.touch(mode=0o600)
        self._control.write_text(control.to_json())
        self._spawn(self._converse())
        try:
            await self._over.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            grace = GRACE_SECONDS if self._worker is not None else 0.0
            children = [*(spare for spare, _ in self._spares), *([self._forks[0]] if self._forks else [])]  # the blanks die with their server
            await asyncio.gather(*(stop(child) for child in children), *([stop(self._worker, grace)] if self._worker else []))
            self._memory.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("node %s ends: %s", self._post.ip, error, exc_info=error)
            self._over.set()

    async def _converse(self) -> None:
        post = self._post
        clocks = Clocks(post.liveness_seconds, post.progress_seconds)
        heard = time.monotonic()
        while True:
            try:
                async with await channel.connect(post.url, post.certificate, clocks) as connection:
                    self._connection = connection
                    await channel.greet(connection, self._hello(), post.token)
                    if post.serves:
                        self._spawn(self._offer())
                    async for text in connection:
                        await self._take(channel.decode(text))
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                log.info("coordinator at %s: %s", post.url, error)
            now = time.monotonic()
            heard, self._connection = now if self._connection is not None else heard, None
            if now - heard > clocks.progress:  # the machine of the launcher is gone, or cut off: its end of our input may never come
                raise RuntimeError(f"no coordinator at {post.url} for {clocks.progress:.0f} s")
            await asyncio.sleep(RETRY_SECONDS)

    def _hello(self) -> NodeHello:
        post, pid = self._post, self._worker.pid if self._worker else None
        return NodeHello(cluster=post.cluster, instance_id=post.instance_id, private_ip=post.ip, attempt=1, base=post.base, worker_pid=pid)

    async def _say(self, message: FromNode) -> None:
        if self._connection is not None:
            with contextlib.suppress(WebSocketException, OSError):  # the reader sees it too, and connects again
                await self._connection.send(channel.encode(message))

    async def _offer(self) -> None:
        async with self._preparing:
            while len(self._blanks) < 2:
                blank = await (await self._fork_server()).fork()
                async with asyncio.timeout(READY_SECONDS):
                    if not await blank.started():
                        raise RuntimeError("no ps-lite process can be started; the reason is above")
                self._blanks.append(blank)
        await self._say(GroupReady(scheduler_port=free_port(self._post.ip), blanks=len(self._blanks)))

    async def _fork_server(self) -> ForkServerLine:
        if self._forks is None or self._forks[0].returncode is not None:
            line = ForkServerLine()
            command = [sys.executable, "-m", "training.engine.blank"]
            self._forks = await start(command, {**self._post.server_environment, **line.environment}, inherited=(line.theirs,)), line
            line.handed_over()
        return self._forks[1]

    async def _take(self, order: FromCoordinator) -> None:
        match order:
            case Welcome():
                if self._worker is None:
                    await self._start_worker()
            case Listed():
                self._listed = order.listed
            case StartGroup():
                await self._start_group(order)
            case StopGroup():
                for generation in [g for g in self._groups if g <= order.generation]:
                    await asyncio.gather(*(blank.stop() for blank in self._groups.pop(generation)))
            case RestartWorker():
                if self._may_restart(order.pid):
                    log.info("worker of %s is started again: %s", self._post.ip, order.reason)
                    if self._worker is not None:
                        await stop(self._worker)
                    await self._start_worker()
            case CoolDown():
                log.warning("worker of %s is not started again before %.0f s have passed: it failed too often", self._post.ip, order.seconds)
            case Retire():
                self._over.set()
            case Refused():
                log.error("the coordinator refused %s: %s", self._post.ip, order.reason)
                self._over.set()
            case _:
                log.warning("ignored an order that is not for a node: %s", order.type)

    def _may_restart(self, pid: int) -> bool:
        if self._worker is None:
            return True
        return self._worker.returncode == 0 if pid == 0 else self._worker.pid == pid or self._worker.returncode is not None

    async def _start_group(self, order: StartGroup) -> None:
        if order.generation in self._groups:
            return  # said again after a broken connection
        group = self._groups.setdefault(order.generation, [])
        if len(self._blanks) < len(order.processes):
            await self._say(GroupFailed(generation=order.generation, reason="not enough blank processes"))
            return
        for process in order.processes:
            blank = self._blanks.pop(0)
            group.append(blank)
            with contextlib.suppress(OSError):  # who watches it tells that it is gone
                await blank.give(process.role, {**process.environment, "DMLC_NODE_HOST": self._post.ip})
            self._spawn(self._watch_group(order.generation, blank))
        self._spawn(self._offer())

    async def _watch_group(self, generation: int, blank: Blank) -> None:
        """The end of one that leaves with its workers is no failure; any other is while its generation stands."""
        if not await blank.ended() and generation in self._groups:
            await self._say(GroupFailed(generation=generation, reason="a ps-lite process ended; its last words are above"))

    async def _start_worker(self) -> None:
        spare = self._take_spare()
        self._worker = spare or await start(self._post.command, self._worker_environment, inherited=self._memory.descriptors)
        await self._say(WorkerStarted(pid=self._worker.pid, spare=spare is not None))  # is nobody there, the next hello says it
        self._spawn(self._watch_worker(self._worker))
        self._spawn(self._keep_spares())

    @property
    def _worker_environment(self) -> dict[str, str]:
        return {
            **self._post.worker_environment,
            **self._memory.environment,
            "DYNTRAIN_CONTROL_FILE": str(self._control),
            "ELASTIC_TRAINING_ENABLED": "1",
        }

    def _take_spare(self) -> asyncio.subprocess.Process | None:
        while self._spares:
            process, line = self._spares.pop(0)
            if process.returncode is None and line.go():
                return process
        return None

    async def _keep_spares(self) -> None:
        """Start what is missing one by one, after the worker: one that ends by itself is made good when the worker is started the next time."""
        async with self._sparing:
            while len(self._spares) < self._post.warm_spares:
                await asyncio.sleep(SPARE_SECONDS)
                line = StandbyLine()
                inherited = (line.theirs, *self._memory.descriptors)
                process = await start(self._post.command, {**self._worker_environment, **line.environment}, inherited=inherited)
                line.handed_over()
                self._spares.append((process, line))
                self._spawn(_close_after(process, line))
                if await line.ready():
                    log.info("a warm spare stands by on %s", self._post.ip)

    async def _watch_worker(self, worker: asyncio.subprocess.Process) -> None:
        code = await worker.wait()
        if worker is not self._worker:
            return
        if code:
            await self._say(WorkerExited(pid=worker.pid, code=code, reason=f"exit code {code}"))
        elif not self._listed:
            self._over.set()


async def _close_after(process: asyncio.subprocess.Process, line: StandbyLine) -> None:
    with line:
        await process.wait()


def free_port(host: str) -> int:
    """Below the ephemeral range, so that no outgoing connection sits on it by chance. Raises RuntimeError when there is none."""
    for _ in range(100):
        port = random.randint(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise RuntimeError(f"no free port on {host}: is it an address of this machine?")


async def _serve(folder: Path) -> None:
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)  # the launcher's to act on; not ignored: children would inherit that
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)  # from the process above, or because that is gone
    line = await reader.readline()
    if not line:
        return
    node = asyncio.create_task(Node(NodePost.model_validate_json(line), folder).run())
    gone, told = asyncio.create_task(reader.read()), asyncio.create_task(stopped.wait())
    await asyncio.wait([node, gone, told], return_when=asyncio.FIRST_COMPLETED)
    for task in (gone, told, node):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await node


def _run(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # is the process above gone, nobody else does
    return 0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="dyntrain-node-") as folder:  # of the process above: it holds the token, and must not outlive the node
        return run_below(lambda: _run(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
