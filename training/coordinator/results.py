"""Uploads a job's results to S3 while the job trains.

A separate program (`dyntrain.training.report.uploads`) uploads the results after each epoch and after the job's end.
Training does not wait for uploads, and a failed upload is announced as an event.
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

RETRY_SECONDS = 60.0  # from a failed upload to the next attempt, unless an epoch ends earlier
GRACE_SECONDS = 2.0  # time for the upload program to end by itself
NICE = "10"  # niceness of the upload program, as training on this node has priority
log = logging.getLogger("coordinator")


class ResultsUploader:
    """Starts the program that uploads results, and sends this program requests.

    `announce` is called with an event for each upload or failure.
    """

    def __init__(self, command: Sequence[str], announce: Callable[[Event], None]) -> None:
        self._command, self._announce = tuple(command), announce
        self._due = asyncio.Event()
        self._asking = asyncio.Lock()
        self._process: Process | None = None
        self.over = False  # whether nothing more will be uploaded

    def request_upload(self) -> None:
        """Have new results uploaded soon, by `run`."""
        self._due.set()

    async def run(self) -> None:
        """Upload new results on request until this task is cancelled; then stop the upload program."""
        retry_seconds: float | None = None
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with timeout(retry_seconds):
                        await self._due.wait()
                self._due.clear()
                retry_seconds = None if await self._upload() else RETRY_SECONDS
        finally:
            await self._end_program()

    async def finish_uploads(self, seconds: float = END_SECONDS) -> None:
        """Upload the remaining results after the job's end, and wait for this upload at most `seconds`.

        The task `run` must still be running.
        """
        try:
            async with timeout(seconds):
                await self._upload()
        except TimeoutError:
            self._announce_failure(
                f"not all was uploaded within {seconds:.0f} s after the job's end; the rest is on the volume"
            )
        finally:
            self.over = True

    async def _upload(self) -> bool:
        async with self._asking:
            try:
                upload_result = await self._request_once()
            except (OSError, ValidationError) as error:
                await self._end_program()
                self._announce_failure(f"the program for uploads gave no answer: {error}")
                return False
        if upload_result.files:
            upload_event = ResultsUploaded(
                files=upload_result.files, size=upload_result.size, seconds=upload_result.seconds, at=time.time()
            )
            self._announce(upload_event)
        if upload_result.failed is not None:
            self._announce_failure(upload_result.failed)
        return upload_result.failed is None

    async def _request_once(self) -> Uploaded:
        """Send one request to the upload program, and start the program if it does not run.

        Raises OSError and ValidationError.
        """
        if self._process is None:
            command = (sys.executable, exec_child.__file__, str(os.getpid()), NICE, *self._command)
            # the program's standard error goes to the coordinator's log
            self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        reply_line = await self._process.stdout.readline()
        if not reply_line:
            exit_code = await self._process.wait()
            raise ChildProcessError(
                f"the program ended with exit code {exit_code}; the coordinator's log shows its errors"
            )
        return Uploaded.model_validate_json(reply_line)

    def _announce_failure(self, reason: str) -> None:
        self._announce(ResultsNotUploaded(reason=reason, at=time.time()))

    async def _end_program(self) -> None:
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
