"""Fills one FIFO from a feeder; if the feeder dies, another one continues at the next byte."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Callable

from dyntrain.training.feed.dealing import Piece, Position, Stream
from dyntrain.training.feed.feeder import DATA, END, HEADER
from dyntrain.training.feed.fifos import enlarge

MOST_DEATHS = 5  # of feeders in a row, without a byte written in between
MOST_READ = 1024 * 1024
_SPLICE_F_NONBLOCK = 2
MOST_AT_ONCE = 64  # reads and writes in a turn, so that other pumps get theirs
Start = Callable[[Position, int], "tuple[int, int]"]  # starts a feeder from a position on, without the first bytes
GOING, ENDED, LEFT, FAILED = "going", "ended", "left", "failed"


class Pump:
    """Moves a feeder's data into a FIFO. `write` is the FIFO's end, which does not block.

    `waits` has the descriptor to wait for; `turn` then moves as much as it can without waiting.
    """

    def __init__(self, name: str, stream: Stream, write: int, start: Start) -> None:
        self.name, self.stream = name, stream
        self.state, self.problem = GOING, ""
        self.position = Position(0)  # before the message that is being read
        self.ends: list[tuple[int, int]] = []  # of pieces that were written whole: piece, records
        self._write, self._start = write, start
        self._taken = 0  # bytes written into the FIFO since `position`
        self._header = b""
        self._next, self._rest = Position(0), 0  # the position after the message that is being read, its bytes left
        self._in_hand: memoryview = memoryview(b"")
        self._deaths = 0
        self._full = False
        self.child, self._pipe = self._begun()

    @property
    def waits(self) -> tuple[int, bool]:
        """The descriptor to wait for, and whether to wait until it is writable."""
        return (self._write, True) if self._full else (self._pipe, False)

    @property
    def gone(self) -> int:
        """The descriptor that has an error once the reader has closed the FIFO."""
        return self._write

    def turn(self) -> None:
        for _ in range(MOST_AT_ONCE):
            step = self._put if self._in_hand else self._pass if self._rest else self._get
            if self.state != GOING or not step():
                return

    def hang_up(self) -> None:
        """Stop, as the reader left or is to get no more. A reader that is still there sees no end before `close`."""
        if self.state == GOING:
            self._over(LEFT)

    def close(self) -> None:
        """Close the FIFO: a reader that is still there sees the end of data."""
        self.hang_up()
        with contextlib.suppress(OSError):
            os.close(self._write)

    def _put(self) -> bool:
        try:
            written = os.write(self._write, self._in_hand)
        except BlockingIOError:
            self._full = True
            return False
        except BrokenPipeError:
            self._over(LEFT)
            return False
        self._in_hand = self._in_hand[written:]
        self._given(written)
        return True

    def _given(self, written: int) -> None:
        self._full = False
        self._taken += written
        self._deaths = 0
        if not self._in_hand and not self._rest:
            self._reached()

    def _pass(self) -> bool:
        """Move data from pipe to FIFO, inside the kernel if Python has `splice`."""
        if not hasattr(os, "splice"):  # before 3.10
            return self._get()
        self._full = False
        try:
            moved = os.splice(self._pipe, self._write, self._rest, flags=_SPLICE_F_NONBLOCK)
        except BlockingIOError:
            self._full = _waiting(self._pipe)
            return False
        except BrokenPipeError:
            self._over(LEFT)
            return False
        if moved:
            self._rest -= moved
            self._given(moved)
        else:
            self._again()
        return True

    def _get(self) -> bool:
        try:
            content = os.read(self._pipe, min(self._rest or HEADER.size - len(self._header), MOST_READ))
        except BlockingIOError:
            return False
        if not content:
            self._again()
        elif self._rest:
            self._rest -= len(content)
            self._in_hand = memoryview(content)
        else:
            self._header += content
            if len(self._header) == HEADER.size:
                self._read_header()
        return True

    def _read_header(self) -> None:
        kind, pieces, record, at, self._rest = HEADER.unpack(self._header)
        self._header, self._next = b"", Position(pieces, record, at)
        if kind == END:
            self.position = self._next
            self._over(ENDED)
        elif kind != DATA:
            os.set_blocking(self._pipe, True)
            with open(self._pipe, "rb", closefd=False) as file:
                self.problem = file.read(self._rest).decode("utf-8", "replace")
            self._over(FAILED)
        elif not self._rest:
            self._reached()

    def _reached(self) -> None:
        self.position, self._taken = self._next, 0

    def _again(self) -> None:
        """Replace a feeder that died. The new one fetches its incomplete message again, without the bytes written."""
        code = _status(os.waitpid(self.child, 0)[1])
        os.close(self._pipe)
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            self.problem = f"{self.name}: its feeder ended {MOST_DEATHS} times at {self._where()}, last {code}"
            self.child = 0
            self._over(FAILED)
            return
        self._header, self._rest = b"", 0
        self.child, self._pipe = self._begun()

    def _begun(self) -> tuple[int, int]:
        child, pipe = self._start(self.position, self._taken)
        os.set_blocking(pipe, False)
        enlarge(pipe)
        return child, pipe

    def _over(self, state: str) -> None:
        self.state = state
        self._in_hand = memoryview(b"")
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = 0
            os.close(self._pipe)

    def _where(self) -> str:
        if self.position.pieces >= len(self.stream):
            return "the end"
        piece: Piece = self.stream[self.position.pieces]
        return f"{piece.source}, byte {max(self.position.at, piece.at)}"


def _waiting(pipe: int) -> bool:
    """Whether the pipe holds data."""
    ready = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return ready != b"\0" * 4


def _status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"by signal {os.WTERMSIG(status)}"
    return f"with exit code {os.WEXITSTATUS(status)}"
