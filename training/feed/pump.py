"""Fills one FIFO from a feeder process. If the feeder dies, a new feeder continues after the last byte in the FIFO."""

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
READ_BYTES = 1024 * 1024  # most bytes of a read
_SPLICE_F_NONBLOCK = 2
MOVES_PER_CALL = 64  # most reads and writes in a call of `move_data`, so that other pumps are not delayed
Start = Callable[[Position, int], "tuple[int, int]"]  # starts a feeder at a position, which skips so many bytes
GOING, ENDED, LEFT, FAILED = "going", "ended", "left", "failed"  # a pump's states; LEFT: the reader closed the FIFO


class Pump:
    """Moves a feeder's data into a FIFO. `write_end` is the FIFO's non-blocking write end.

    Before each call of `move_data`, wait until the descriptor of `awaited_descriptor` is ready. `move_data` moves data
    without waiting.
    """

    def __init__(self, name: str, stream: Stream, write_end: int, start: Start) -> None:
        self.name, self.stream = name, stream
        self.state, self.problem = GOING, ""
        self.position = Position(0)  # before the current message
        self.ends: list[tuple[int, int]] = []  # of completely written pieces: piece, records
        self._write, self._start = write_end, start
        self._written = 0  # bytes written into the FIFO since `position`
        self._header = b""
        self._next, self._bytes_left = (
            Position(0),
            0,
        )  # the position after the current message, the message's bytes left
        self._pending: memoryview = memoryview(b"")
        self._deaths = 0
        self._full = False
        self.child_pid, self._pipe = self._start_feeder()

    @property
    def awaited_descriptor(self) -> tuple[int, bool]:
        """The descriptor to wait for, and whether to wait until it is writable (True) or readable (False)."""
        return (self._write, True) if self._full else (self._pipe, False)

    @property
    def fifo_descriptor(self) -> int:
        """The descriptor that reports an error once the reader has closed the FIFO."""
        return self._write

    def move_data(self) -> None:
        for _ in range(MOVES_PER_CALL):
            move = self._write_pending_data if self._pending else self._splice if self._bytes_left else self._read_pipe
            if self.state != GOING or not move():
                return

    def hang_up(self) -> None:
        """Stop filling the FIFO, as the reader closed the FIFO or shall get no more data.

        A reader of the FIFO sees no end of data before `close` is called.
        """
        if self.state == GOING:
            self._end_with_state(LEFT)

    def close(self) -> None:
        """Close the FIFO's write end, so that a remaining reader sees the end of the data."""
        self.hang_up()
        with contextlib.suppress(OSError):
            os.close(self._write)

    def _write_pending_data(self) -> bool:
        try:
            written_bytes = os.write(self._write, self._pending)
        except BlockingIOError:
            self._full = True
            return False
        except BrokenPipeError:
            self._end_with_state(LEFT)
            return False
        self._pending = self._pending[written_bytes:]
        self._count_written_bytes(written_bytes)
        return True

    def _count_written_bytes(self, written: int) -> None:
        self._full = False
        self._written += written
        self._deaths = 0
        if not self._pending and not self._bytes_left:
            self._complete_message()

    def _splice(self) -> bool:
        """Move data from the feeder's pipe to the FIFO, inside the kernel if Python has `os.splice`."""
        if not hasattr(os, "splice"):  # before 3.10
            return self._read_pipe()
        self._full = False
        try:
            moved_bytes = os.splice(self._pipe, self._write, self._bytes_left, flags=_SPLICE_F_NONBLOCK)
        except BlockingIOError:
            self._full = _holds_data(self._pipe)
            return False
        except BrokenPipeError:
            self._end_with_state(LEFT)
            return False
        if moved_bytes:
            self._bytes_left -= moved_bytes
            self._count_written_bytes(moved_bytes)
        else:
            self._restart_feeder()
        return True

    def _read_pipe(self) -> bool:
        try:
            received_bytes = os.read(self._pipe, min(self._bytes_left or HEADER.size - len(self._header), READ_BYTES))
        except BlockingIOError:
            return False
        if not received_bytes:
            self._restart_feeder()
        elif self._bytes_left:
            self._bytes_left -= len(received_bytes)
            self._pending = memoryview(received_bytes)
        else:
            self._header += received_bytes
            if len(self._header) == HEADER.size:
                self._read_header()
        return True

    def _read_header(self) -> None:
        message_kind, pieces, record, offset, self._bytes_left = HEADER.unpack(self._header)
        self._header, self._next = b"", Position(pieces, record, offset)
        if message_kind == END:
            self.position = self._next
            self._end_with_state(ENDED)
        elif message_kind != DATA:
            os.set_blocking(self._pipe, True)
            with open(self._pipe, "rb", closefd=False) as pipe_file:
                self.problem = pipe_file.read(self._bytes_left).decode("utf-8", "replace")
            self._end_with_state(FAILED)
        elif not self._bytes_left:
            self._complete_message()

    def _complete_message(self) -> None:
        self.position, self._written = self._next, 0

    def _restart_feeder(self) -> None:
        """Replace a dead feeder.

        The new feeder sends the incomplete message again, without the bytes already in the FIFO.
        """
        exit_text = _exit_text(os.waitpid(self.child_pid, 0)[1])
        os.close(self._pipe)
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            self.problem = (
                f"{self.name}: its feeder ended {MOST_DEATHS} times at {self._position_text()}, last {exit_text}"
            )
            self.child_pid = 0
            self._end_with_state(FAILED)
            return
        self._header, self._bytes_left = b"", 0
        self.child_pid, self._pipe = self._start_feeder()

    def _start_feeder(self) -> tuple[int, int]:
        child_pid, pipe = self._start(self.position, self._written)
        os.set_blocking(pipe, False)
        enlarge(pipe)
        return child_pid, pipe

    def _end_with_state(self, state: str) -> None:
        self.state = state
        self._pending = memoryview(b"")
        if self.child_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child_pid, signal.SIGKILL)
            os.waitpid(self.child_pid, 0)
            self.child_pid = 0
            os.close(self._pipe)

    def _position_text(self) -> str:
        if self.position.pieces >= len(self.stream):
            return "the end"
        piece: Piece = self.stream[self.position.pieces]
        return f"{piece.source}, byte {max(self.position.offset, piece.offset)}"


def _holds_data(pipe: int) -> bool:
    """Whether the pipe contains unread bytes."""
    byte_count = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return byte_count != b"\0" * 4


def _exit_text(wait_status: int) -> str:
    if os.WIFSIGNALED(wait_status):
        return f"by signal {os.WTERMSIG(wait_status)}"
    return f"with exit code {os.WEXITSTATUS(wait_status)}"
