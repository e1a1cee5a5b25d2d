"""Keeps warm spares: processes that have imported MXNet and built their model, and take over when the worker dies.

`dyntrain.training.host.standby` defines the protocol between a spare and the node's program. A waiting spare needs as
much memory as a worker, but no processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.host.processes import Child, Children, Program
from dyntrain.training.host.standby import StandbySocket
from dyntrain.training.timeouts import timeout

SPARE_NICENESS = 10  # niceness of a spare that gets ready while the job trains
log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Spare:
    child: Child  # the spare's process
    socket: StandbySocket  # connection between the spare and this process
    ready: bool = False  # whether the spare has built its model


class Spares:
    """Keeps `count` warm spares ready while `is_needed` returns True."""

    def __init__(
        self, program: Program | None, count: int, children: Children, is_needed: Callable[[], bool], timing: Timing
    ) -> None:
        self.program, self._count, self._children, self._is_needed, self._timing = (
            program,
            count,
            children,
            is_needed,
            timing,
        )
        self._waiting: list[_Spare] = []
        self._deaths = self._hangs = 0
        self._discard_count = 0
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    @property
    def ready_count(self) -> int:
        """Number of warm spares that have built their model."""
        return sum(spare.ready for spare in self._waiting)

    @property
    def pids(self) -> list[int]:
        return [spare.child.pid for spare in self._waiting]

    def notify_change(self) -> None:
        """Make `run` check again whether spares are needed."""
        self._changed.set()

    def take_spare(self) -> Child | None:
        """Let a spare, preferably one that is ready, take over as the worker.

        Returns the spare's process, or None if there is no spare.
        """
        while self._waiting:
            spare = max(self._waiting, key=lambda spare: spare.ready)
            self._waiting.remove(spare)
            self._changed.set()
            with contextlib.suppress(PermissionError, ProcessLookupError):  # only root may lower niceness
                os.setpriority(os.PRIO_PGRP, spare.child.pid, os.getpriority(os.PRIO_PROCESS, 0))
            if spare.socket.go():
                log.info("a spare takes over", extra={"pid": spare.child.pid, "ready": spare.ready})
                return spare.child
        return None

    async def run(self) -> None:
        """Start missing spare processes until the task is cancelled.

        Starts one spare at a time, since several processes that import modules at once would slow the worker.
        """
        try:
            while True:
                self._changed.clear()
                if (
                    len(self._waiting) >= self._count
                    or not self._is_needed()
                    or any(not spare.ready for spare in self._waiting)
                ):
                    await self._changed.wait()
                    continue
                await asyncio.sleep(
                    self._timing.spare_delay_seconds
                    if not self._deaths
                    else self._timing.blank_backoff.delay(self._deaths)
                )
                if not self._is_needed():
                    continue
                discards_before_start = self._discard_count
                try:
                    await self._start_spare()
                    if discards_before_start != self._discard_count:  # during the start
                        await self.discard_spares()
                except (OSError, NodeError) as error:
                    self._deaths += 1
                    log.error("a warm spare cannot be started", extra={"reason": str(error)})
        finally:
            for spare_watcher in self._watchers:
                spare_watcher.cancel()

    async def discard_spares(self) -> None:
        """Kill all waiting spares, including a spare that is being started. Takes at most as long as `Child.stop`."""
        self._discard_count += 1
        waiting_spares, self._waiting = self._waiting, []
        await asyncio.gather(*(spare.child.stop() for spare in waiting_spares))
        self._changed.set()

    async def _start_spare(self) -> None:
        with contextlib.ExitStack() as stack:
            spare_socket = stack.enter_context(StandbySocket())
            assert self.program is not None, "spares are needed only while a worker runs, which has a program"
            spare_process = await self._children.start(
                "spare",
                self.program.with_environment(spare_socket.environment, spare_socket.child_fd),
                SPARE_NICENESS,
            )
            stack.pop_all()  # from here on the spare's watcher closes the socket
        spare_socket.close_child_end()
        spare = _Spare(spare_process, spare_socket)
        self._waiting.append(spare)
        spare_watcher = asyncio.create_task(self._watch_spare(spare))
        self._watchers.add(spare_watcher)
        spare_watcher.add_done_callback(self._watchers.discard)

    async def _watch_spare(self, spare: _Spare) -> None:
        """Watch a spare until its process ends, also after it took over as the worker."""
        with spare.socket:
            limit_seconds = self._timing.spare_start_seconds * 2.0 ** min(
                self._hangs, 10
            )  # a spare may just be slow, because of its low priority
            try:
                async with timeout(limit_seconds):
                    spare.ready = await spare.socket.ready()
            except TimeoutError:
                if spare in self._waiting:  # the coordinator has its own time limit for a spare that took over
                    log.error(
                        "a warm spare hangs before it is ready",
                        extra={"pid": spare.child.pid, "seconds": limit_seconds},
                    )
                    self._hangs += 1
                    self._remove(spare)
                    await spare.child.stop()
            if spare.ready:
                self._deaths = self._hangs = 0
                self._changed.set()
                log.info("a warm spare stands by", extra={"pid": spare.child.pid})
            await spare.child.wait()
        if spare in self._waiting:
            log.warning("a warm spare ended", extra={"pid": spare.child.pid})
            self._remove(spare)

    def _remove(self, spare: _Spare) -> None:
        self._waiting.remove(spare)
        self._deaths += 1
        self._changed.set()
