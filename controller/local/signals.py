"""Shut the embedded cloud down cleanly on a signal. SIGTERM and SIGHUP raise an exception, as Ctrl-C does; further
signals do not interrupt the clean-up.
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


class EndedBySignal(BaseException):
    """Raised when a signal of `ENDING_SIGNALS` came. This class derives from BaseException, so that `except Exception`
    does not catch an EndedBySignal.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.number = signal_number


class SignalWaiter:
    """Let the main thread wait until a signal ends the program. The function `signal.pause` is not used, because the
    function could wait for ever. The kernel may give the signal to another thread, or Python may drop an EndedBySignal
    that is raised in a `__del__`.
    """

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver

    def wait(self) -> NoReturn:
        """Wait for a signal of `ENDING_SIGNALS`, which may have come before this call, and raise EndedBySignal."""
        while True:
            select.select([self._receiver], [], [])
            for signal_number in self._receiver.recv(4096):
                if signal_number in ENDING_SIGNALS:
                    raise EndedBySignal(signal_number)


def _raise_ended_by_signal(signal_number: int, frame: FrameType | None) -> None:
    for ending_signal in ENDING_SIGNALS:
        signal.signal(ending_signal, signal.SIG_IGN)
    raise EndedBySignal(signal_number)


@contextmanager
def raise_on_signals() -> Iterator[SignalWaiter]:
    """A context in which the first ending signal raises EndedBySignal in the main thread. Further ending signals are
    ignored until the block ends. If SIGHUP was ignored before the block, as under nohup, SIGHUP stays ignored.
    """
    read_end, write_end = socket.socketpair()
    with closing(read_end), closing(write_end):
        write_end.setblocking(False)
        # Python writes the numbers of signals to this socket, whichever thread is interrupted
        former_descriptor = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
        ignored_signals = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
        former_handlers = {
            signal_number: signal.signal(signal_number, _raise_ended_by_signal)
            for signal_number in ENDING_SIGNALS
            if signal_number not in ignored_signals
        }
        try:
            yield SignalWaiter(read_end)
        finally:
            for signal_number, handler in former_handlers.items():
                signal.signal(signal_number, handler)
            signal.set_wakeup_fd(former_descriptor)
