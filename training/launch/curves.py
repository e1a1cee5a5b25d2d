"""Runs `dyntrain tensorboard` in a child process, which writes a launched job's curves for TensorBoard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from dyntrain.training.host import exec_child
from dyntrain.training.timeouts import timeout

END_SECONDS = 60.0  # to write and upload the last points; more than a busy machine needs
LOG_NAME = "tensorboard.log"  # in the job's folder
log = logging.getLogger("launch")


@asynccontextmanager
async def write_curves(job_folder: Path, destination: str | None, is_over: Callable[[], bool]) -> AsyncIterator[None]:
    """Write the job's curves while the `async with` block runs, unless `destination` is None.

    `is_over` says whether the job has ended. If the curves cannot be written, a warning is logged and the job
    continues.
    """
    if destination is None:
        yield
        return
    writer_options = ("--logdir", destination, "--no-serve", "--follow")
    writer_command = (sys.executable, "-m", "dyntrain", "tensorboard", str(job_folder), *writer_options)
    with (job_folder / LOG_NAME).open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, exec_child.__file__, str(os.getpid()), "0", *writer_command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,  # only the launcher handles Ctrl-C
        )
    failure_watch = asyncio.create_task(_warn_on_failure(process, job_folder / LOG_NAME))
    try:
        yield
    finally:
        failure_watch.cancel()
        await _end_writer(process, ends_itself=is_over())


async def _warn_on_failure(process: asyncio.subprocess.Process, log_file: Path) -> None:
    if await process.wait():
        log.warning("TensorBoard's curves are no longer written; see %s", log_file)


async def _end_writer(process: asyncio.subprocess.Process, *, ends_itself: bool) -> None:
    """Stop the process that writes the curves.

    With `ends_itself`, wait up to `END_SECONDS` for the process to exit before SIGTERM is sent.
    """
    for end_process in (*((lambda: None,) if ends_itself else ()), process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            end_process()
        with contextlib.suppress(TimeoutError):
            async with timeout(END_SECONDS):
                await process.wait()
                return
