"""How tests wait: for a condition, never for a time. `seconds` are an idle host's; a slow one has more."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from dyntrain.controller.local.pace import Deadline, patient

Found = TypeVar("Found")


def wait_for(
    look: Callable[[], Found], seconds: float = 10.0, what: str | Callable[[], str] = "", pause: float = 0.02
) -> Found:
    """The first true value of `look`; without one in time the test fails with `what`, which may be worked out then."""
    deadline = Deadline(seconds)
    while not (found := look()):
        _in_time(deadline, found, what)
        time.sleep(pause)
    return found


async def until(
    look: Callable[[], Found], seconds: float = 10.0, what: str | Callable[[], str] = "", pause: float = 0.01
) -> Found:
    """The same beside other tasks of the loop."""
    deadline = Deadline(seconds)
    while not (found := look()):
        _in_time(deadline, found, what)
        await asyncio.sleep(pause)
    return found


def exit_code(process: subprocess.Popen[bytes], seconds: float, said: Callable[[], str]) -> int:
    """Of a process that is about to end. Started with PYTHONFAULTHANDLER in its environment, one that does not end
    says where each of its threads is; the test fails with what it `said`.
    """
    try:
        return process.wait(patient(seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(patient(5))
        raise AssertionError(f"it did not end: {said()}") from None


def _in_time(deadline: Deadline, found: object, what: str | Callable[[], str]) -> None:
    if deadline.passed():
        said = what() if callable(what) else what
        raise AssertionError(f"not within {deadline.bound:.0f} s: {said or f'last seen: {found!r}'}")
