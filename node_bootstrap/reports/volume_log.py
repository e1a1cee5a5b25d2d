"""Copies the worker's output to the shared volume, for `tail -f` on any node (setting `logs: volume`)."""

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

MAX_COPY_BYTES = 20 * 1024 * 1024  # size of a node's copy above which the copy is moved to the older copy
log = logging.getLogger(__name__)


class VolumeLog:
    """Runs the program `log_copy` as a separate process, so that a volume that does not answer delays no other process.

    The function `target` returns, for the name of a job, the path to which the log is copied.
    """

    def __init__(
        self,
        source: Path,
        target: Callable[[str], Path],
        children: Children,
        user: str | None,
        own_log: Path,
        timing: Timing,
        max_bytes: int = MAX_COPY_BYTES,
    ) -> None:
        self._source, self._target, self._children = source, target, children
        self._user, self._own_log, self._timing, self._max_bytes = user, own_log, timing, max_bytes
        self._job = ""
        self._start = 0
        self._changed = asyncio.Event()

    def set_job(self, job: str) -> None:
        """Copy the worker's output to the log file of `job` from now on."""
        if job != self._job:
            self._job, self._start = job, self._source_bytes()
            self._changed.set()

    async def run(self) -> None:
        """Keep the copying program running until cancelled: if it ends or cannot start, it is started again later."""
        await self._changed.wait()
        restart_count = 0
        with contextlib.suppress(Interrupted):
            while True:
                self._changed.clear()
                try:
                    child = await self._children.start("log-copy", self._copying_program())
                except OSError as error:
                    log.warning("the worker's output is not copied to the volume", extra={"reason": str(error)})
                else:
                    await self._wait_for_end(child)
                if self._changed.is_set():
                    restart_count = 0
                    continue
                self._start = self._source_bytes()  # output written meanwhile is only in the node's own log
                await asyncio.sleep(self._timing.own_restart_backoff.delay(restart_count))
                restart_count += 1

    async def _wait_for_end(self, child: Child) -> None:
        """Wait until the copying program ends or another job begins, then stop the program."""
        waiting_tasks = [asyncio.create_task(child.wait()), asyncio.create_task(self._changed.wait())]
        try:
            await asyncio.wait(waiting_tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting_tasks:
                task.cancel()
        await child.stop(self._timing.node_stop_grace_seconds)

    def _copying_program(self) -> Program:
        arguments = (str(self._source), str(self._start), str(self._target(self._job)), str(self._max_bytes))
        return Program((sys.executable, "-I", "-S", log_copy.__file__, *arguments), {}, self._own_log, user=self._user)

    def _source_bytes(self) -> int:
        return self._source.stat().st_size if self._source.exists() else 0
