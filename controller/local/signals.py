"""Signals that end the cloud in order: SIGTERM and SIGHUP unwind like Ctrl-C does, and the clean-up itself is not
interrupted.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """Raised when one of `ENDING` came. Not an Exception, so that nothing on the way out takes it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Ending:
    """A wait for the main thread. `signal.pause` would wait for ever for a signal that the kernel gave to another
    thread, and for one whose Ended was raised where Python drops exceptions, as in a `__del__`.
    """

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver

    def wait(self) -> NoReturn:
        """Wait until Ended is raised, also when the signal came before."""
        while True:
            select.select([self._receiver], [], [])
            for number in self._receiver.recv(4096):
                if number in ENDING:
                    raise Ended(number)


def _end(number: int, frame: FrameType | None) -> None:
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise Ended(number)


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """A context in which the first ending signal raises Ended in the main thread, and further ones are ignored until
    the block is left. A SIGHUP that was ignored before, as by nohup, stays so.
    """
    read_end, write_end = socket.socketpair()
    with closing(read_end), closing(write_end):
        write_end.setblocking(False)
        # Python writes to it whichever thread is interrupted
        woken = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
        unheard = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
        before = {number: signal.signal(number, _end) for number in ENDING if number not in unheard}
        try:
            yield Ending(read_end)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
