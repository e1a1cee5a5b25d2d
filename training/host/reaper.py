"""The parent process of the bootstrap: adopts orphans, and lets no process outlive the bootstrap.

The kernel can kill a child with its parent, but not a grandchild: after a SIGKILL of the bootstrap, processes of a
training script would continue. As the nearest subreaper (prctl(2)) this process becomes the parent of all such orphans,
and finds them even if they changed their group, session or environment. The reaper does nothing else, and imports no
module that could fail. If the reaper is killed, the bootstrap gets SIGTERM and stops cleanly. If both are killed at
once, processes remain until systemd ends the control group, or the next run kills them.
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


def reaper_pid() -> int | None:
    """The id of the process that adopts this process's orphans; None if there is none."""
    return _reapers[-1] if _reapers and _reapers[-1] == os.getppid() else None


def run_below(program: Callable[[], int], on_beat: Callable[[], None] | None = None) -> int:
    """Run `program` in a child process; returns its exit code (128 + a signal's number) once all descendants are gone.

    Stop signals are forwarded to the child; `on_beat` is called when the child sends SIGUSR1. Call `run_below` with a
    single thread, since it forks.
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
    """Handle signals until the child has ended; returns its exit code."""
    while True:
        signum = signal.sigwait(SIGNALS)
        if signum in FORWARDED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signum)
        elif signum is signal.SIGUSR1:
            on_beat()
        elif (code := _reap().get(child)) is not None:
            return code if code >= 0 else 128 - code


def _reap() -> dict[int, int]:
    """Exit codes of ended children, including adopted ones; after a signal, minus its number."""
    codes = {}
    with contextlib.suppress(ChildProcessError):
        while (status := os.waitpid(-1, os.WNOHANG))[0]:
            codes[status[0]] = os.waitstatus_to_exitcode(status[1])
    return codes


def _clear() -> None:
    """Kill descendants until none is left, as a descendant may fork while it is killed."""
    deadline = time.monotonic() + KILL_SECONDS
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(pids)
        _reap()
        time.sleep(0.005)
