"""A person's terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Sequence

from waiting import wait_for


class Terminal:
    """What runs in it has it for its input and output. Each wait fails after `seconds` with what it showed."""

    def __init__(self, argv: Sequence[str], seconds: float, env: dict[str, str] | None = None) -> None:
        self._output, self._seconds = b"", seconds
        self._screen, theirs = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_heard,
        )
        os.close(theirs)
        os.set_blocking(self._screen, False)

    def shows(self, text: str) -> bool:
        try:
            while piece := os.read(self._screen, 65536):
                self._output += piece
        except OSError:  # nothing new, or nobody writes any more
            pass
        return text.encode() in self._output

    def wait_for(self, text: str) -> None:
        wait_for(lambda: self.shows(text), self._seconds, lambda: f"{text!r} in {self._output.decode()[-3000:]}")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def type(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def ends(self) -> int:
        """The exit code."""
        wait_for(lambda: (self.shows(""), self.process.poll())[1] is not None, self._seconds, self._output.decode)
        self.shows("")
        return self.process.wait()

    def close(self) -> None:
        """As a window is closed, which nothing survives that does not want to."""
        self.process.send_signal(signal.SIGHUP)
        assert self.ends() == -signal.SIGHUP
        os.close(self._screen)


def _heard() -> None:
    """As a shell has them in a terminal; a background job that runs tests has Ctrl-C ignored, nohup the other."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
