"""End the cloud in order on a signal: SIGTERM and SIGHUP raise an exception like Ctrl-C, and no signal interrupts the
clean-up.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import NoReturn

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """Raised when a signal of `ENDING_SIGNALS` came. `Ended` is no Exception, so that no `except Exception`
    catches it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Ending:
    """A wait for the main thread until a signal ends the program. `signal.pause` could wait for ever: the kernel may
    give the signal to another thread, or Ended may be raised where Python drops exceptions, as in a `__del__`.
    """

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver

    def wait(self) -> NoReturn:
        """Wait until a signal of `ENDING_SIGNALS` came, also before this call, and raise Ended."""
        while True:
            select.select([self._receiver], [], [])
            for number in self._receiver.recv(4096):
                if number in ENDING_SIGNALS:
                    raise Ended(number)


def _raise_ended(number: int, frame: FrameType | None) -> None:
    for ending in ENDING_SIGNALS:
        signal.signal(ending, signal.SIG_IGN)
    raise Ended(number)


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """A context in which the first ending signal raises Ended in the main thread. Further signals are ignored until the
    block ends. If SIGHUP was ignored before, as by nohup, it stays ignored.
    """
    read_end, write_end = socket.socketpair()
    with closing(read_end), closing(write_end):
        write_end.setblocking(False)
        # Python writes the numbers of signals to this socket, whichever thread is interrupted
        former_descriptor = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
        former_handlers = {
            number: signal.signal(number, _raise_ended) for number in ENDING_SIGNALS if number not in ignored
        }
        try:
            yield Ending(read_end)
        finally:
            for number, handler in former_handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former_descriptor)
