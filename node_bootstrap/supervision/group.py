"""Keeps a node's ps-lite processes, and assigns their roles for each generation (a group of workers).

A blank is an idle process, forked from a fork server that has imported mxnet (`dyntrain.training.host.forkserver`). A
line of JSON assigns a role to a blank, which then becomes a ps-lite scheduler or a ps-lite server.
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
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain_exit
from dyntrain.training.host.forkserver import Blank, ForkServerSocket
from dyntrain.training.protocol.node_messages import GroupFailed, GroupReady, StartGroup
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout

PORTS = range(10000, 30000)  # below the ports that the kernel gives to outgoing connections
log = logging.getLogger(__name__)


@dataclass(eq=False)
class GroupProcess:
    """A process that is still idle (a blank), or has become a ps-lite scheduler or server."""

    blank: Blank  # the forked process
    server: Child  # the fork server from which the process was forked
    ready: bool = False  # whether the process has started
    role: str = "blank"  # such as blank, scheduler or server
    generation: int | None = None  # number of the group; None: the process has no role yet


def free_port(host: str, tries: int = 50) -> int:
    """Return a free port on `host`. Raises OSError if none of `tries` ports is free.

    If another program takes the port before the ps-lite scheduler does, the group fails, and the next group uses
    another port.
    """
    for _ in range(tries):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe_socket, contextlib.suppress(OSError):
            probe_socket.bind((host, port))
            return port
    raise OSError(f"no free port found on {host} in {tries} tries between {PORTS.start} and {PORTS.stop}")


class PsGroup:
    """The ps-lite processes of a node.

    While `group_size` idle processes (blanks) are ready, the node offers the coordinator to form a group of them. The
    node keeps twice as many idle processes as a group needs, so that a second group can be formed right after the first
    group. If the fork server dies, all processes that it has forked die too. After the death of the fork server,
    processes that already had a role are reported as failed, and a new fork server is started.

    `send` sends a message to the coordinator, and returns False without a connection. `state` returns messages that
    could not be sent, for the next connection. `uid` is the id of the user that runs the processes, or None for the
    current user.
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
        self._server_lock = asyncio.Lock()  # the pool and an order may both need to start the server
        self._idle_blanks: list[GroupProcess] = []
        self._processes_by_generation: dict[int, list[GroupProcess]] = {}
        self._is_base = False
        self._last_stopped_generation = 0
        self._refill_at = 0.0
        self._deaths = 0
        self._port: int | None = None
        self._failure: GroupFailed | None = None
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    def state(self) -> list[FromNode]:
        """Return the messages to send over a new connection: the last failure, and the group that the node offers."""
        messages: list[FromNode] = [self._failure] if self._failure else []
        ready_count = sum(process.ready for process in self._usable_blanks())
        if ready_count >= self._group_size:
            if self._port is None:
                self._port = free_port(self._host)
            messages.append(GroupReady(scheduler_port=self._port, blanks=ready_count, base=self._is_base))
        return messages

    def become_base(self) -> None:
        """Record that the node is a base node now, and tell the coordinator."""
        self._is_base = True
        self._offer_group()

    async def run(self) -> None:
        """Start idle processes (blanks) whenever fewer than needed exist, until the task is cancelled."""
        try:
            while True:
                self._changed.clear()
                if len(self._idle_blanks) >= self._group_size + self._spares:
                    await self._changed.wait()
                    continue
                if (pause_seconds := self._refill_at - time.monotonic()) > 0:
                    with contextlib.suppress(TimeoutError):
                        async with timeout(pause_seconds):
                            await self._changed.wait()
                    continue
                if self._deaths:
                    await asyncio.sleep(self._timing.blank_backoff.delay(self._deaths - 1))
                try:
                    await self._fork_blank()
                except OSError as error:
                    self._deaths += 1
                    log.error("a blank ps-lite process cannot be started", extra={"reason": str(error)})
        finally:
            for process_watcher in self._watchers:
                process_watcher.cancel()

    async def start(self, order: StartGroup) -> None:
        """Assign the roles of a group to idle processes (blanks). A repeated or outdated order changes nothing.

        If no idle process is ready, an idle process that is still starting gets the role.
        """
        if order.generation <= self._last_stopped_generation or order.generation in self._processes_by_generation:
            log.info(
                "ignored an order to start an earlier group",
                extra={"generation": order.generation, "stopped": self._last_stopped_generation},
            )
            return
        group_processes = self._processes_by_generation[order.generation] = []
        self._port = None
        self._refill_at = time.monotonic() + self._timing.group_formation_seconds
        for role_request in order.processes:
            try:
                process = self._ready_or_starting_blank() or await self._fork_blank()
                if process in self._idle_blanks:
                    self._idle_blanks.remove(process)
                group_processes.append(process)
                process.role, process.generation = role_request.role, order.generation
                await process.blank.give(role_request.role, role_request.environment)
                log.info(
                    "assigned a role to a process",
                    extra={
                        "role": role_request.role,
                        "pid": process.blank.pid,
                        "generation": order.generation,
                        "ready": process.ready,
                    },
                )
            except (OSError, NodeError) as error:
                self._report_failure(order.generation, f"{role_request.role}: {error}")
        self._offer_group()
        self._changed.set()

    async def stop(self, generation: int) -> None:
        """Kill the ps-lite processes of the group `generation` and of all earlier groups.

        A later order to start a stopped group changes nothing.
        """
        self._last_stopped_generation = max(self._last_stopped_generation, generation)
        self._refill_at = 0.0  # the previous group is stopped when the current group is formed
        self._changed.set()
        if self._failure and self._failure.generation <= self._last_stopped_generation:
            self._failure = None
        processes_to_stop = [
            process
            for earlier_generation in sorted(self._processes_by_generation)
            if earlier_generation <= self._last_stopped_generation
            for process in self._processes_by_generation.pop(earlier_generation)
        ]
        await asyncio.gather(*(process.blank.stop() for process in processes_to_stop))

    async def forget_groups(self) -> None:
        """Kill the processes of a finished job's groups, and count generations from 1 again.

        Idle processes (blanks) are kept.
        """
        await self.stop(max(self._processes_by_generation, default=self._last_stopped_generation))
        self._last_stopped_generation = 0

    async def stop_all(self) -> None:
        """Kill all ps-lite processes, including idle processes (blanks) and the fork server."""
        self._group_size = self._spares = 0
        await self.stop(max(self._processes_by_generation, default=self._last_stopped_generation))
        idle_blanks, self._idle_blanks = self._idle_blanks, []
        await asyncio.gather(*(process.blank.stop() for process in idle_blanks))
        if self._server:
            await self._server[0].stop()

    def _ready_or_starting_blank(self) -> GroupProcess | None:
        """Return an idle process (blank) that is ready, else a blank that is starting, else None."""
        return max(self._usable_blanks(), key=lambda process: process.ready, default=None)

    def _usable_blanks(self) -> list[GroupProcess]:
        """Return the idle processes (blanks) of the current fork server. Blanks of an earlier fork server are dying."""
        return [process for process in self._idle_blanks if self._server and process.server is self._server[0]]

    async def _fork_blank(self) -> GroupProcess:
        async with self._server_lock:
            if self._server is None:
                self._server = await self._start_server()
            fork_server, server_socket = self._server
        process = GroupProcess(await server_socket.fork(), fork_server)
        self._idle_blanks.append(process)
        self._start_watcher(self._watch_process(process))
        return process

    async def _start_server(self) -> tuple[Child, ForkServerSocket]:
        server_socket = ForkServerSocket()
        try:
            fork_server = await self._children.start(
                "ps-lite", self._program.with_environment(server_socket.environment, server_socket.child_fd)
            )
        except (OSError, NodeError):
            server_socket.close()
            raise
        server_socket.close_child_end()
        self._start_watcher(self._watch_server(fork_server, server_socket))
        return fork_server, server_socket

    def _start_watcher(self, coroutine: Coroutine[None, None, None]) -> None:
        process_watcher = asyncio.create_task(coroutine)
        self._watchers.add(process_watcher)
        process_watcher.add_done_callback(self._watchers.discard)

    async def _watch_server(self, child: Child, server_socket: ForkServerSocket) -> None:
        exit_code = await child.wait()
        server_socket.close()
        if self._server and self._server[0] is child:
            self._server = None
            if self._group_size:
                self._deaths += 1
                log.error(
                    "the fork server of the ps-lite processes ended",
                    extra={"pid": child.pid, "reason": explain_exit(exit_code, 0.0), "output": child.last_output()},
                )
        await child.stop()
        self._changed.set()

    async def _watch_process(self, process: GroupProcess) -> None:
        """Watch a forked process from its start to its end."""
        fork_server = process.server
        try:
            async with timeout(self._timing.blank_start_seconds):
                process.ready = await process.blank.started(self._uid)
        except TimeoutError:
            if self._server and self._server[0] is fork_server:
                self._server = None  # at once, since no order may go to a server that is being ended
                self._deaths += 1
                log.error("the fork server does not answer and is started again", extra={"pid": fork_server.pid})
            await fork_server.stop()
        if process.ready:
            self._deaths = 0
            self._offer_group()
        ended_normally = process.ready and await process.blank.ended()
        await process.blank.stop()
        if process in self._idle_blanks:
            self._idle_blanks.remove(process)
            self._deaths = max(self._deaths, 1)  # a death of the server is counted separately
            log.error(
                "a blank ps-lite process ended", extra={"pid": process.blank.pid, "output": fork_server.last_output()}
            )
            self._changed.set()
        elif (
            process.generation is not None and process.generation > self._last_stopped_generation and not ended_normally
        ):
            self._report_failure(
                process.generation, f"{process.role} ended; last output:\n{fork_server.last_output(limit=1000)}"
            )

    def _offer_group(self) -> None:
        try:
            for message in self.state():
                if isinstance(message, GroupReady):
                    self._send(message)
        except OSError as error:
            log.error("no group can be offered", extra={"reason": str(error)})

    def _report_failure(self, generation: int, reason: str) -> None:
        self._failure = GroupFailed(generation=generation, reason=reason)
        log.error("a ps-lite process failed", extra={"generation": generation, "reason": reason})
        self._send(self._failure)
