"""Read a child process's output line by line, with time limits."""

from __future__ import annotations

import os
import selectors

from dyntrain.controller.local.pace import Deadline


def read_line(descriptor: int, deadline: Deadline, pending: bytes = b"") -> tuple[bytes, bytes]:
    """Read the next line of a child process's output. Returns the line and the bytes that were read after the line. The
    caller passes the bytes after the line as `pending` to the next call. Raises TimeoutError after the deadline, and
    EOFError when the output ends before the line is complete.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while b"\n" not in pending:
            if not selector.select(deadline.seconds_left):
                if not deadline.passed():
                    continue
                raise TimeoutError
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise EOFError
            pending += chunk
    line, _, unread = pending.partition(b"\n")
    return line, unread
