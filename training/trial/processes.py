"""Run the processes of an experiment. Each process has a log file and a time limit, and ends before the experiment
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dyntrain.training.timeouts import timeout

END_SECONDS = 20.0  # seconds in which a launch must end its nodes
LONGEST_LINE = 300  # most characters of a log line that are shown


class RunTooLong(Exception):
    """A process of an experiment did not end within its time limit."""


@dataclass(frozen=True)
class EndedRun:
    code: int  # the exit code
    log: Path  # path of the log file

    @property
    def last_log_line(self) -> str:
        """The last line that the process wrote to its log."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:LONGEST_LINE] if lines else "its log is empty"


async def run(command: Sequence[str], environment: Mapping[str, str], log: Path, seconds: float) -> EndedRun:
    """Run a command until it ends. Raises RunTooLong if it runs for more than `seconds`.

    On return, all processes of the command's process group have ended.
    """
    with log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
        )
    try:
        async with timeout(seconds):
            return EndedRun(await process.wait(), log)
    except TimeoutError:
        raise RunTooLong from None
    finally:
        await _end_processes(process)


async def _end_processes(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with timeout(END_SECONDS):
                await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(process_group: int, signal_number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_group, signal_number)
