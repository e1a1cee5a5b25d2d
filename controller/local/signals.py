"""Signals that end the cloud in order: SIGTERM and SIGHUP unwind like Ctrl-C does, and the clean-up itself is not interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """One of `ENDING` came. Not an Exception, so that nothing on the way out takes it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _end(number: int, frame: FrameType | None) -> None:
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise Ended(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, the first ending signal raises Ended in the main thread, and further ones are ignored until the block is left."""
    before = {number: signal.signal(number, _end) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
