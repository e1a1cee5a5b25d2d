"""Kills a program when the feed, the process that fills the program's FIFOs, is killed.

When the feed dies, the kernel kills only the program's first process. If the FIFOs ended at once, the program's other
processes would take the end of a FIFO for the end of an epoch. So feeders keep the FIFOs open until the guardian has
killed the program's whole process group.
"""

from __future__ import annotations

import contextlib
import os
import signal

from dyntrain.training.feed.opened import close_other_descriptors


class Guardian:
    """A child process that kills a program when the feed dies.

    `group` is the guardian's process group, which feeders join.
    """

    def __init__(self, program: int) -> None:
        """Fork the guardian, which will kill the process group `program`."""
        watched_pipe, self._held_end = os.pipe()
        self.group = os.fork()
        if self.group:
            os.close(watched_pipe)
            with contextlib.suppress(OSError):
                os.setpgid(self.group, self.group)  # parent and child both set it, as either may run first
            return
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(signal_number, signal.SIG_IGN)
            close_other_descriptors(watched_pipe)
            if not os.read(watched_pipe, 1):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program, signal.SIGKILL)
                os.killpg(0, signal.SIGKILL)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """Stop the guardian, after the program has ended."""
        os.write(self._held_end, b".")
        os.close(self._held_end)
        os.waitpid(self.group, 0)
