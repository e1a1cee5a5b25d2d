"""A copy of the worker's output on the shared volume, for `tail -f` on any node (setting `logs: volume`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import Interrupted
from dyntrain.node_bootstrap.host.processes import Child, Children, Program
from dyntrain.node_bootstrap.reports import log_copy

MOST_BYTES = 20 * 1024 * 1024  # per node, and as much again in the older file
log = logging.getLogger(__name__)


class VolumeLog:
    """Runs the copying program (`log_copy`), so that a hanging volume delays neither the worker nor the node.

    `target` returns the copy's path for a job.
    """

    def __init__(
        self,
        source: Path,
        target: Callable[[str], Path],
        children: Children,
        user: str | None,
        own_log: Path,
        timing: Timing,
        max_bytes: int = MOST_BYTES,
    ) -> None:
        self._source, self._target, self._children = source, target, children
        self._user, self._own_log, self._timing, self._max_bytes = user, own_log, timing, max_bytes
        self._job = ""
        self._start = 0
        self._changed = asyncio.Event()

    def follow(self, job: str) -> None:
        """Copy the worker's output to the file of `job` from now on."""
        if job != self._job:
            self._job, self._start = job, self._size()
            self._changed.set()

    async def run(self) -> None:
        """Keep the copying program running until cancelled. Failures are only logged."""
        await self._changed.wait()
        tries = 0
        with contextlib.suppress(Interrupted):
            while True:
                self._changed.clear()
                try:
                    child = await self._children.start("log-copy", self._program())
                except OSError as error:
                    log.warning("the worker's output is not copied to the volume", extra={"reason": str(error)})
                else:
                    await self._wait_for_end(child)
                if self._changed.is_set():
                    tries = 0
                    continue
                self._start = self._size()  # output written meanwhile is only in the node's own log
                await asyncio.sleep(self._timing.own_restart.delay(tries))
                tries += 1

    async def _wait_for_end(self, child: Child) -> None:
        """Wait until the program ends or another job begins, then stop it."""
        waits = [asyncio.create_task(child.wait()), asyncio.create_task(self._changed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        await child.stop(self._timing.stop_grace)

    def _program(self) -> Program:
        arguments = (str(self._source), str(self._start), str(self._target(self._job)), str(self._max_bytes))
        return Program((sys.executable, "-I", "-S", log_copy.__file__, *arguments), {}, self._own_log, user=self._user)

    def _size(self) -> int:
        return self._source.stat().st_size if self._source.exists() else 0
