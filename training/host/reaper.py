"""The process above the bootstrap: adopts whatever loses its parent, and lets nothing outlive the bootstrap.

The kernel can kill a child with its parent, but not a grandchild: what a training script started would run on after a
SIGKILL of the bootstrap. As the nearest subreaper (prctl(2)) this process becomes the parent of all such orphans, so it
finds them, whatever they did to their group, session or environment. It does nothing else, and imports nothing that
could fail. Is it killed itself, the bootstrap gets SIGTERM and stops in good order; only when both are killed at once
does anything stay, until systemd ends the control group or the next life sweeps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from dyntrain.training.host.parentage import adopt_orphans, descendants, die_with_parent, kill_all

KILL_SECONDS = 5.0
FORWARDED = (signal.SIGTERM, signal.SIGINT)
SIGNALS = {*FORWARDED, signal.SIGCHLD, signal.SIGUSR1}
_reapers: list[int] = []


def above() -> int | None:
    """The process that adopts what loses its parent below this one; None: there is none."""
    return _reapers[-1] if _reapers and _reapers[-1] == os.getppid() else None


def run_below(program: Callable[[], int], on_beat: Callable[[], None] | None = None) -> int:
    """Run `program` in a child process; its exit code (128 + the signal that ended it) once all of its descendants are
    gone.

    Stop signals are handed on to it; at each SIGUSR1 of it `on_beat` is called. Call this while the process has a
    single thread: it forks.
    """
    adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        die_with_parent(parent, signal.SIGTERM)
        _reapers.append(parent)
        os._exit(program())
    code = _await(child, on_beat or (lambda: None))
    _clear()
    return code


def _await(child: int, on_beat: Callable[[], None]) -> int:
    while True:
        received = signal.sigwait(SIGNALS)
        if received in FORWARDED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, received)
        elif received is signal.SIGUSR1:
            on_beat()
        elif (code := _reap().get(child)) is not None:
            return code if code >= 0 else 128 - code


def _reap() -> dict[int, int]:
    """The exit codes of the children that ended, adopted ones too; minus the signal's number when a signal ended
    one.
    """
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            ended[waited[0]] = os.waitstatus_to_exitcode(waited[1])
    return ended


def _clear() -> None:
    """Again and again until there are none: one may fork while it is being killed, and a killed one's children come up
    here.
    """
    until = time.monotonic() + KILL_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        kill_all(left)
        _reap()
        time.sleep(0.005)
