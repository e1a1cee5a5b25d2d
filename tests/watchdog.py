"""Ends the process of a test that hangs where its timeout cannot end it.

pytest-timeout's signal comes once, and raises in Python on the main thread. It never gets there while that thread waits
in C++ (for MXNet's engine, or for a lock in a fork), and what it raises may be lost in a callback, or clean-up may hang
after it. A run would then stand still until somebody ends all of it. This watchdog is a thread of C's own: it writes
where each thread is to the run's stderr, and ends the process. With xdist another one takes its place; the test has
failed, and is looked at once more, alone.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Generator

import pytest
import pytest_timeout
from _pytest.faulthandler import fault_handler_stderr_fd_key
from dyntrain.controller.local.pace import patient

AFTER = 60.0  # seconds that a test has for its clean-up once its bound has passed
LONGEST = 900.0  # seconds: a machine that stood still for a while may look a hundred times slower than it is
UNTIL = pytest.StashKey[float]()


def bound(timeout: float) -> float:
    """In seconds, of a test that says so many: as patient as all others."""
    return min(patient(timeout), max(LONGEST, 4 * timeout))


def begin(item: pytest.Item, seconds: float) -> None:
    """`seconds`: until the test's timeout, as patient as it is."""
    item.stash[UNTIL] = time.monotonic() + seconds + patient(AFTER)
    _arm(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """pytest disarms it when a test raises."""
    _arm(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _arm(item: pytest.Item) -> None:
    until = item.stash.get(UNTIL, None)
    if until is None or pytest_timeout.is_debugging():
        return
    stderr = item.config.stash[fault_handler_stderr_fd_key]  # the run's, not what is captured of a test
    faulthandler.dump_traceback_later(max(until - time.monotonic(), 0.1), exit=True, file=stderr)
