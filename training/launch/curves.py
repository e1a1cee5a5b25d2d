"""TensorBoard's curves of a launched job, written by `dyntrain tensorboard` in a process of its own."""

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
LOG = "tensorboard.log"
log = logging.getLogger("launch")


@asynccontextmanager
async def curves(job: Path, destination: str | None, over: Callable[[], bool]) -> AsyncIterator[None]:
    """Write the curves while the block runs, unless `destination` is None.

    `job` is the job's folder; `over` says whether its events contain the job's end. If the curves cannot be
    written, a warning is logged and the job continues.
    """
    if destination is None:
        yield
        return
    options = ("--logdir", destination, "--no-serve", "--follow")
    command = (sys.executable, "-m", "dyntrain", "tensorboard", str(job), *options)
    with (job / LOG).open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, exec_child.__file__, str(os.getpid()), "0", *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,  # only the launcher handles Ctrl-C
        )
    watch = asyncio.create_task(_warn_on_failure(process, job / LOG))
    try:
        yield
    finally:
        watch.cancel()
        await _end(process, itself=over())


async def _warn_on_failure(process: asyncio.subprocess.Process, file: Path) -> None:
    if await process.wait():
        log.warning("TensorBoard's curves are no longer written; see %s", file)


async def _end(process: asyncio.subprocess.Process, *, itself: bool) -> None:
    """End the process. With `itself`, the process ends with the job; otherwise it is terminated."""
    for end in (*((lambda: None,) if itself else ()), process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            end()
        with contextlib.suppress(TimeoutError):
            async with timeout(END_SECONDS):
                await process.wait()
                return
