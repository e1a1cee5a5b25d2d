"""Uploads a job's results to S3 while the job trains.

A separate program (`dyntrain.training.report.uploads`) uploads them at the end of each epoch and of the job. Training
does not wait for uploads, and a failed one becomes an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

from dyntrain.training.events import Event, ResultsNotUploaded, ResultsUploaded
from dyntrain.training.host import exec_child
from dyntrain.training.protocol.results import END_SECONDS, Uploaded
from dyntrain.training.timeouts import timeout
from pydantic import ValidationError

AGAIN_SECONDS = 60.0  # from a failure to the next try, unless an epoch ends earlier
GRACE_SECONDS = 2.0  # in which the program may end by itself
NICE = "10"  # training on this node has priority
log = logging.getLogger("coordinator")


class Results:
    """The program that uploads results. `announce` is called with an event for each upload or failure."""

    def __init__(self, command: Sequence[str], announce: Callable[[Event], None]) -> None:
        self._command, self._announce = tuple(command), announce
        self._due = asyncio.Event()
        self._asking = asyncio.Lock()
        self._process: Process | None = None
        self.over = False  # whether nothing more will be uploaded

    def request_upload(self) -> None:
        """Request an upload of new results."""
        self._due.set()

    async def run(self) -> None:
        """Upload new results until cancelled; then end the program."""
        retry_after: float | None = None
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with timeout(retry_after):
                        await self._due.wait()
                self._due.clear()
                retry_after = None if await self._upload() else AGAIN_SECONDS
        finally:
            await self._end()

    async def finish(self, seconds: float = END_SECONDS) -> None:
        """Upload the remaining results after the job's end, within `seconds`. Call it while `run` runs."""
        try:
            async with timeout(seconds):
                await self._upload()
        except TimeoutError:
            self._failed(f"not all was uploaded within {seconds:.0f} s after the job's end; the rest is on the volume")
        finally:
            self.over = True

    async def _upload(self) -> bool:
        async with self._asking:
            try:
                answer = await self._ask()
            except (OSError, ValidationError) as error:
                await self._end()
                self._failed(f"the program for uploads gave no answer: {error}")
                return False
        if answer.files:
            uploaded = ResultsUploaded(files=answer.files, size=answer.size, seconds=answer.seconds, at=time.time())
            self._announce(uploaded)
        if answer.failed is not None:
            self._failed(answer.failed)
        return answer.failed is None

    async def _ask(self) -> Uploaded:
        """Ask the program to upload, and start it if needed. Raises OSError and ValidationError."""
        if self._process is None:
            command = (sys.executable, exec_child.__file__, str(os.getpid()), NICE, *self._command)
            # the program's standard error goes to the coordinator's log
            self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise ChildProcessError(f"it ended with exit code {code}; see its errors in the coordinator's log")
        return Uploaded.model_validate_json(line)

    def _failed(self, reason: str) -> None:
        self._announce(ResultsNotUploaded(reason=reason, at=time.time()))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # at the end of its input the program ends cleanly
        try:
            async with timeout(GRACE_SECONDS):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
