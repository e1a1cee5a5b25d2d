"""A launched job's curves for TensorBoard: `dyntrain tensorboard` writes them beside the job, and holds nothing up."""

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

END_SECONDS = 60.0  # to write, and upload, what came last; more than a busy machine needs
LOG = "tensorboard.log"
log = logging.getLogger("launch")


@asynccontextmanager
async def curves(job: Path, destination: str | None, over: Callable[[], bool]) -> AsyncIterator[None]:
    """While inside; None: nobody wants them. `job`: the job's folder, whose events are there; `over`: whether its end
    is among them. Where they cannot be written, that is said, and the job goes on.
    """
    if destination is None:
        yield
        return
    options = ("--logdir", destination, "--no-serve", "--follow")
    command = (sys.executable, "-m", "dyntrain", "tensorboard", str(job), *options)
    with (job / LOG).open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, exec_child.__file__, str(os.getpid()), "0", *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is the launcher's
        )
    watch = asyncio.create_task(_complain(process, job / LOG))
    try:
        yield
    finally:
        watch.cancel()
        await _end(process, itself=over())


async def _complain(process: asyncio.subprocess.Process, file: Path) -> None:
    if await process.wait():
        log.warning("TensorBoard's curves are not written any more; %s says why", file)


async def _end(process: asyncio.subprocess.Process, *, itself: bool) -> None:
    """It ends with its job by `itself`; that one was broken off it has to be told."""
    for end in (*((lambda: None,) if itself else ()), process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            end()
        with contextlib.suppress(TimeoutError):
            async with timeout(END_SECONDS):
                await process.wait()
                return
