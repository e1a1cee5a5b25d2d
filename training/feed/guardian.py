"""Ends a program when the feed that it reads from is killed.

The kernel ends only the program's first process with the feed. What that one has started would meet the end of each
FIFO, and take it for the end of an epoch. So feeders hold the FIFOs open, and this process ends all readers first.
"""

from __future__ import annotations

import contextlib
import os
import signal

from dyntrain.training.feed.opened import keep_only


class Guardian:
    """A child of this process. `group` is that of it and of the feeders, which end with it."""

    def __init__(self, program: int) -> None:
        """`program` is a process group."""
        watched, self._held = os.pipe()
        self.group = os.fork()
        if self.group:
            os.close(watched)
            with contextlib.suppress(OSError):
                os.setpgid(self.group, self.group)  # here too: whichever of the two is first
            return
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            keep_only(watched)
            if not os.read(watched, 1):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program, signal.SIGKILL)
                os.killpg(0, signal.SIGKILL)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """The program has ended."""
        os.write(self._held, b".")
        os.close(self._held)
        os.waitpid(self.group, 0)
