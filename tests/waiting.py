"""How tests wait: for a condition, never for a time. `seconds` are an idle host's; a slow one has more."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from dyntrain.controller.local.pace import Deadline, patient

Value = TypeVar("Value")


def wait_for(
    look: Callable[[], Value], seconds: float = 10.0, what: str | Callable[[], str] = "", pause: float = 0.02
) -> Value:
    """The first true value of `look`; without one in time the test fails with `what`, which may be worked out then."""
    deadline = Deadline(seconds)
    while not (value := look()):
        _in_time(deadline, value, what)
        time.sleep(pause)
    return value


async def until(
    look: Callable[[], Value], seconds: float = 10.0, what: str | Callable[[], str] = "", pause: float = 0.01
) -> Value:
    """The same beside other tasks of the loop."""
    deadline = Deadline(seconds)
    while not (value := look()):
        _in_time(deadline, value, what)
        await asyncio.sleep(pause)
    return value


def exit_code(process: subprocess.Popen[bytes], seconds: float, output: Callable[[], str]) -> int:
    """Of a process that is about to end. Started with PYTHONFAULTHANDLER in its environment, one that does not end
    says where each of its threads is; the test fails with its `output`.
    """
    try:
        return process.wait(patient(seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(patient(5))
        raise AssertionError(f"it did not end: {output()}") from None


def _in_time(deadline: Deadline, value: object, what: str | Callable[[], str]) -> None:
    if deadline.passed():
        sentence = what() if callable(what) else what
        raise AssertionError(f"not within {deadline.bound:.0f} s: {sentence or f'last seen: {value!r}'}")
