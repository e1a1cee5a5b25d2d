"""Keeps the blank ps-lite processes of a base node, and hands them their roles, generation by generation.

A blank has imported mxnet and waits for one JSON line that makes it a scheduler or a server; the import is what takes long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from node_bootstrap.errors import NodeError
from node_bootstrap.files import tail
from node_bootstrap.pacing import Timing
from node_bootstrap.prepare import explain
from node_bootstrap.processes import Child, Children
from training.protocol import FromNode, GroupFailed, GroupReady, PsProcess, StartGroup

PORTS = range(10000, 30000)  # below the ports that the kernel gives to outgoing connections
QUIET = 10  # niceness of a blank that imports mxnet while the job trains
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Blank:
    child: Child
    ready: bool = False
    role: str = "blank"
    generation: int | None = None


def free_port(host: str, tries: int = 50) -> int:
    """A port on `host` that nobody listens on now; it may be taken before it is used, then the group fails and the next is formed elsewhere."""
    for _ in range(tries):
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(f"no free port found on {host} in {tries} tries between {PORTS.start} and {PORTS.stop}")


@dataclass(frozen=True)
class BlankProgram:
    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path


class PsGroup:
    """A group is offered while `wanted` blanks are ready; as many spares let a second change follow the first at once.

    `tell` sends to the coordinator and is False when nobody listens: `state` says it again later.
    """

    def __init__(self, program: BlankProgram, wanted: int, host: str, children: Children, tell: Callable[[FromNode], bool], timing: Timing) -> None:
        self._program, self._wanted, self._spares, self._host = program, wanted, wanted, host
        self._children, self._tell, self._timing = children, tell, timing
        self._pool: list[Blank] = []
        self._live: dict[int, list[Blank]] = {}
        self._stopped = 0
        self._used = False
        self._refill_at = 0.0
        self._deaths = 0
        self._port: int | None = None
        self._failure: GroupFailed | None = None
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    def state(self) -> list[FromNode]:
        """What a coordinator that just connected must know."""
        said: list[FromNode] = [self._failure] if self._failure else []
        ready = sum(blank.ready for blank in self._pool)
        if ready >= self._wanted:
            if self._port is None:
                self._port = free_port(self._host)
            said.append(GroupReady(scheduler_port=self._port, blanks=ready))
        return said

    async def run(self) -> None:
        """Fills the pool whenever it is short, until cancelled."""
        try:
            while True:
                self._changed.clear()
                if len(self._pool) >= self._wanted + self._spares:
                    await self._changed.wait()
                    continue
                if (left := self._refill_at - time.monotonic()) > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await self._changed.wait()
                    continue
                if self._deaths:
                    await asyncio.sleep(self._timing.blank.delay(self._deaths - 1))
                try:
                    await self._spawn(QUIET if self._used or len(self._pool) >= self._wanted else 0)
                except OSError as error:
                    self._deaths += 1
                    log.error("a blank ps-lite process cannot be started", extra={"reason": str(error)})
        finally:
            for watcher in self._watchers:
                watcher.cancel()

    async def start(self, order: StartGroup) -> None:
        """Hand out the roles. Repeated or late orders change nothing.

        Where no blank is ready, one that still imports gets its line early, and finds it when it looks.
        """
        if order.generation <= self._stopped or order.generation in self._live:
            log.info("ignored an order to start an earlier group", extra={"generation": order.generation, "stopped": self._stopped})
            return
        members = self._live[order.generation] = []
        self._used, self._port = True, None
        self._refill_at = time.monotonic() + self._timing.formation
        for process in order.processes:
            try:
                blank = self._take() or await self._spawn(0)
                if blank in self._pool:
                    self._pool.remove(blank)
                members.append(blank)
                await self._hand(blank, process, order.generation)
            except (OSError, NodeError) as error:
                self._fail(order.generation, f"{process.role}: {error}")
        self._announce()
        self._changed.set()

    async def stop(self, generation: int) -> None:
        """Kill the processes of this and of earlier generations; later orders to start these change nothing."""
        self._stopped = max(self._stopped, generation)
        self._refill_at = 0.0  # the group before goes when the present one is formed
        self._changed.set()
        if self._failure and self._failure.generation <= self._stopped:
            self._failure = None
        doomed = [blank for number in sorted(self._live) if number <= self._stopped for blank in self._live.pop(number)]
        await asyncio.gather(*(blank.child.stop() for blank in doomed))

    async def stop_all(self) -> None:
        """Kill the blanks too."""
        await self.stop(max(self._live, default=self._stopped))
        pool, self._pool = self._pool, []
        self._wanted = self._spares = 0
        await asyncio.gather(*(blank.child.stop() for blank in pool))

    def _take(self) -> Blank | None:
        return max(self._pool, key=lambda blank: blank.ready, default=None)

    async def _hand(self, blank: Blank, process: PsProcess, generation: int) -> None:
        blank.role, blank.generation = process.role, generation
        with contextlib.suppress(PermissionError, ProcessLookupError):  # only root may take niceness back
            os.setpriority(os.PRIO_PGRP, blank.child.pid, 0)
        stdin, _ = blank.child.pipes
        stdin.write(json.dumps({"role": process.role, "environment": process.environment}).encode() + b"\n")
        await stdin.drain()
        stdin.close()
        log.info("handed out a role", extra={"role": process.role, "pid": blank.child.pid, "generation": generation, "ready": blank.ready})

    async def _spawn(self, nice: int) -> Blank:
        program = self._program
        child = await self._children.start(
            "ps-lite", program.command, log_path=program.log_path, environment=program.environment, piped=True, nice=nice
        )
        blank = Blank(child)
        self._pool.append(blank)
        watcher = asyncio.create_task(self._watch(blank))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return blank

    async def _watch(self, blank: Blank) -> None:
        """From the first line to the end of the process."""
        _, stdout = blank.child.pipes
        with blank.child.log_path.open("ab") as output:
            while chunk := await stdout.read(65536):
                if not blank.ready and b"ready" in chunk.splitlines():
                    blank.ready, self._deaths = True, 0
                    self._announce()
                else:
                    output.write(chunk)
                    output.flush()
        code = await blank.child.wait()
        await blank.child.stop()
        if blank in self._pool:
            self._pool.remove(blank)
            self._deaths += 1
            log.error(
                "a blank ps-lite process ended", extra={"pid": blank.child.pid, "reason": explain(code, 0.0), "output": tail(blank.child.log_path)}
            )
            self._changed.set()
        elif blank.generation is not None and blank.generation > self._stopped and code != 0:
            # code 0 is how they end when all workers have left the group
            self._fail(blank.generation, f"{blank.role}: {explain(code, 0.0)}; last output:\n{tail(blank.child.log_path, limit=1000)}")

    def _announce(self) -> None:
        try:
            for message in self.state():
                if isinstance(message, GroupReady):
                    self._tell(message)
        except OSError as error:
            log.error("no group can be offered", extra={"reason": str(error)})

    def _fail(self, generation: int, reason: str) -> None:
        self._failure = GroupFailed(generation=generation, reason=reason)
        log.error("a ps-lite process failed", extra={"generation": generation, "reason": reason})
        self._tell(self._failure)
