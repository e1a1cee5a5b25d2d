"""Ends a program when the feed that it reads from is killed.

When the feed dies, the kernel kills only the program's first process. That process's own children would take the end
of each FIFO for the end of an epoch. So feeders keep the FIFOs open until the guardian has killed the
program's whole process group.
"""

from __future__ import annotations

import contextlib
import os
import signal

from dyntrain.training.feed.opened import keep_only


class Guardian:
    """A child of this process. `group` is the process group of the child and the feeders, which die together."""

    def __init__(self, program: int) -> None:
        """Fork the guardian of the process group `program`."""
        watched, self._held = os.pipe()
        self.group = os.fork()
        if self.group:
            os.close(watched)
            with contextlib.suppress(OSError):
                os.setpgid(self.group, self.group)  # parent and child both set it, as either may run first
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
        """End the guardian, because the program has ended."""
        os.write(self._held, b".")
        os.close(self._held)
        os.waitpid(self.group, 0)
