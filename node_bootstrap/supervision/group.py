"""Keeps a node's blank ps-lite processes, and assigns their roles for each generation (group of workers).

A blank is a process forked from a fork server that has imported mxnet (`dyntrain.training.host.forkserver`). A JSON
line makes the blank a ps-lite scheduler or server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain
from dyntrain.training.host.forkserver import Blank, ForkServerSocket
from dyntrain.training.protocol.node_messages import GroupFailed, GroupReady, StartGroup
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout

PORTS = range(10000, 30000)  # below the ports that the kernel gives to outgoing connections
log = logging.getLogger(__name__)


@dataclass(eq=False)
class GroupProcess:
    """A process that is blank, or has become a ps-lite scheduler or server."""

    blank: Blank
    server: Child
    ready: bool = False
    role: str = "blank"
    generation: int | None = None


def free_port(host: str, tries: int = 50) -> int:
    """Find a free port on `host`.

    If another program takes the port before its use, the group fails, and the next group uses another port.
    """
    for _ in range(tries):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(f"no free port found on {host} in {tries} tries between {PORTS.start} and {PORTS.stop}")


class PsGroup:
    """The ps-lite processes of a node.

    A group is offered to the coordinator while `group_size` blanks are ready. As many further blanks allow a second
    change right after the first. If the fork server dies, its processes die: processes with a role count as failed,
    and a new fork server is started.

    `send` sends a message to the coordinator, and returns False without a connection: `state` repeats the message.
    `uid` is the id of the program's user; None: the current user.
    """

    def __init__(
        self,
        program: Program,
        group_size: int,
        host: str,
        children: Children,
        send: Callable[[FromNode], bool],
        timing: Timing,
        uid: int | None = None,
    ) -> None:
        self._uid = uid
        self._program, self._group_size, self._spares, self._host = program, group_size, group_size, host
        self._children, self._send, self._timing = children, send, timing
        self._server: tuple[Child, ForkServerSocket] | None = None
        self._turn = asyncio.Lock()  # the pool and an order may both need to start the server
        self._pool: list[GroupProcess] = []
        self._live: dict[int, list[GroupProcess]] = {}
        self._base = False
        self._last_stopped = 0
        self._refill_at = 0.0
        self._deaths = 0
        self._port: int | None = None
        self._failure: GroupFailed | None = None
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    def state(self) -> list[FromNode]:
        """Messages for a coordinator that has just connected."""
        messages: list[FromNode] = [self._failure] if self._failure else []
        ready = sum(process.ready for process in self._usable_blanks())
        if ready >= self._group_size:
            if self._port is None:
                self._port = free_port(self._host)
            messages.append(GroupReady(scheduler_port=self._port, blanks=ready, base=self._base))
        return messages

    def become_base(self) -> None:
        """Note that the node is a base node now, and offer it to the coordinator as such."""
        self._base = True
        self._announce()

    async def run(self) -> None:
        """Start blanks whenever some are missing, until cancelled."""
        try:
            while True:
                self._changed.clear()
                if len(self._pool) >= self._group_size + self._spares:
                    await self._changed.wait()
                    continue
                if (pause := self._refill_at - time.monotonic()) > 0:
                    with contextlib.suppress(TimeoutError):
                        async with timeout(pause):
                            await self._changed.wait()
                    continue
                if self._deaths:
                    await asyncio.sleep(self._timing.blank.delay(self._deaths - 1))
                try:
                    await self._spawn()
                except OSError as error:
                    self._deaths += 1
                    log.error("a blank ps-lite process cannot be started", extra={"reason": str(error)})
        finally:
            for watcher in self._watchers:
                watcher.cancel()

    async def start(self, order: StartGroup) -> None:
        """Assign the roles of a group. Repeated or outdated orders change nothing.

        If no blank is ready, a blank that still imports mxnet gets a role, and reads it after the import.
        """
        if order.generation <= self._last_stopped or order.generation in self._live:
            log.info(
                "ignored an order to start an earlier group",
                extra={"generation": order.generation, "stopped": self._last_stopped},
            )
            return
        members = self._live[order.generation] = []
        self._port = None
        self._refill_at = time.monotonic() + self._timing.formation
        for request in order.processes:
            try:
                process = self._take() or await self._spawn()
                if process in self._pool:
                    self._pool.remove(process)
                members.append(process)
                process.role, process.generation = request.role, order.generation
                await process.blank.give(request.role, request.environment)
                log.info(
                    "assigned a role to a process",
                    extra={
                        "role": request.role,
                        "pid": process.blank.pid,
                        "generation": order.generation,
                        "ready": process.ready,
                    },
                )
            except (OSError, NodeError) as error:
                self._fail(order.generation, f"{request.role}: {error}")
        self._announce()
        self._changed.set()

    async def stop(self, generation: int) -> None:
        """Kill the processes of this and of earlier generations. Later orders to start them change nothing."""
        self._last_stopped = max(self._last_stopped, generation)
        self._refill_at = 0.0  # the previous group is stopped when the current group is formed
        self._changed.set()
        if self._failure and self._failure.generation <= self._last_stopped:
            self._failure = None
        processes_to_stop = [
            process
            for number in sorted(self._live)
            if number <= self._last_stopped
            for process in self._live.pop(number)
        ]
        await asyncio.gather(*(process.blank.stop() for process in processes_to_stop))

    async def forget(self) -> None:
        """Kill the processes of a finished job, and restart the count of generations. The blanks stay ready."""
        await self.stop(max(self._live, default=self._last_stopped))
        self._last_stopped = 0

    async def stop_all(self) -> None:
        """Kill all processes, including the blanks and the fork server."""
        self._group_size = self._spares = 0
        await self.stop(max(self._live, default=self._last_stopped))
        pool, self._pool = self._pool, []
        await asyncio.gather(*(process.blank.stop() for process in pool))
        if self._server:
            await self._server[0].stop()

    def _take(self) -> GroupProcess | None:
        """Return a ready blank if possible, else a starting blank, else None."""
        return max(self._usable_blanks(), key=lambda process: process.ready, default=None)

    def _usable_blanks(self) -> list[GroupProcess]:
        """The blanks of the current fork server. Other blanks die with their own fork server."""
        return [process for process in self._pool if self._server and process.server is self._server[0]]

    async def _spawn(self) -> GroupProcess:
        async with self._turn:
            if self._server is None:
                self._server = await self._start_server()
            child, server_socket = self._server
        process = GroupProcess(await server_socket.fork(), child)
        self._pool.append(process)
        self._watch(self._follow(process))
        return process

    async def _start_server(self) -> tuple[Child, ForkServerSocket]:
        server_socket = ForkServerSocket()
        try:
            child = await self._children.start(
                "ps-lite", self._program.with_environment(server_socket.environment, server_socket.child_fd)
            )
        except (OSError, NodeError):
            server_socket.close()
            raise
        server_socket.close_child_end()
        self._watch(self._follow_server(child, server_socket))
        return child, server_socket

    def _watch(self, coroutine: Coroutine[None, None, None]) -> None:
        watcher = asyncio.create_task(coroutine)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _follow_server(self, child: Child, server_socket: ForkServerSocket) -> None:
        code = await child.wait()
        server_socket.close()
        if self._server and self._server[0] is child:
            self._server = None
            if self._group_size:
                self._deaths += 1
                log.error(
                    "the fork server of the ps-lite processes ended",
                    extra={"pid": child.pid, "reason": explain(code, 0.0), "output": child.last_output()},
                )
        await child.stop()
        self._changed.set()

    async def _follow(self, process: GroupProcess) -> None:
        """Watch a process from its request to its end."""
        server = process.server
        try:
            async with timeout(self._timing.blank_start):
                process.ready = await process.blank.started(self._uid)
        except TimeoutError:
            if self._server and self._server[0] is server:
                self._server = None  # at once, since no order may go to a server that is being ended
                self._deaths += 1
                log.error("the fork server does not answer and is started again", extra={"pid": server.pid})
            await server.stop()
        if process.ready:
            self._deaths = 0
            self._announce()
        ended_normally = process.ready and await process.blank.ended()
        await process.blank.stop()
        if process in self._pool:
            self._pool.remove(process)
            self._deaths = max(self._deaths, 1)  # a death of the server is counted separately
            log.error("a blank ps-lite process ended", extra={"pid": process.blank.pid, "output": server.last_output()})
            self._changed.set()
        elif process.generation is not None and process.generation > self._last_stopped and not ended_normally:
            self._fail(process.generation, f"{process.role} ended; last output:\n{server.last_output(limit=1000)}")

    def _announce(self) -> None:
        try:
            for message in self.state():
                if isinstance(message, GroupReady):
                    self._send(message)
        except OSError as error:
            log.error("no group can be offered", extra={"reason": str(error)})

    def _fail(self, generation: int, reason: str) -> None:
        self._failure = GroupFailed(generation=generation, reason=reason)
        log.error("a ps-lite process failed", extra={"generation": generation, "reason": reason})
        self._send(self._failure)
