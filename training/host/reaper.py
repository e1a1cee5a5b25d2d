"""The reaper, the parent process of a node's bootstrap: kills all processes that outlive the bootstrap.

The kernel can kill a child when its parent dies, but not a grandchild, so processes of a training script would outlive
a bootstrap that gets SIGKILL. As a subreaper (prctl(2)), the reaper becomes the parent of a process whose parent has
died (orphan), and finds an orphan even if the orphan changed its group, session or environment. The reaper has no other
task, and imports no module that could fail. If the reaper is killed, the bootstrap gets SIGTERM and stops cleanly. If
the bootstrap and the reaper are killed together, their descendants remain until systemd stops the control group, or
until the next bootstrap kills them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from dyntrain.training.host.parentage import adopt_orphans, descendants, die_with_parent, kill_all

KILL_SECONDS = 5.0  # for killed descendants to end
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT)  # signals that are passed on to the child
AWAITED_SIGNALS = {*FORWARDED_SIGNALS, signal.SIGCHLD, signal.SIGUSR1}
_reaper_pids: list[int] = []  # the reaper's pid, in the reaper's child


def reaper_pid() -> int | None:
    """Return the pid of this process's parent if the parent is the reaper, otherwise None."""
    return _reaper_pids[-1] if _reaper_pids and _reaper_pids[-1] == os.getppid() else None


def run_below(program: Callable[[], int], on_beat: Callable[[], None] | None = None) -> int:
    """Run `program` in a child process, and return the child's exit code once all descendants have ended.

    If a signal ended the child, the exit code is 128 + the signal's number.

    SIGTERM and SIGINT are forwarded to the child. `on_beat` is called when the child sends SIGUSR1. Call `run_below` in
    a process with a single thread, since it forks.
    """
    adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED_SIGNALS)
    parent_pid = os.getpid()
    child_pid = os.fork()
    if child_pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED_SIGNALS)
        die_with_parent(parent_pid, signal.SIGTERM)
        _reaper_pids.append(parent_pid)
        os._exit(program())
    exit_code = _await_exit_code(child_pid, on_beat or (lambda: None))
    _kill_descendants()
    return exit_code


def _await_exit_code(child_pid: int, on_beat: Callable[[], None]) -> int:
    """Forward or handle the signals that arrive until the child has ended. Returns the child's exit code."""
    while True:
        signal_number = signal.sigwait(AWAITED_SIGNALS)
        if signal_number in FORWARDED_SIGNALS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child_pid, signal_number)
        elif signal_number is signal.SIGUSR1:
            on_beat()
        elif (exit_code := _reap_children().get(child_pid)) is not None:
            return exit_code if exit_code >= 0 else 128 - exit_code


def _reap_children() -> dict[int, int]:
    """Return the exit code of each child that has ended, by pid. Adopted processes are included.

    If a signal ended the child, the code is minus the signal's number.
    """
    exit_codes = {}  # by pid
    with contextlib.suppress(ChildProcessError):
        while (wait_result := os.waitpid(-1, os.WNOHANG))[0]:
            exit_codes[wait_result[0]] = os.waitstatus_to_exitcode(wait_result[1])
    return exit_codes


def _kill_descendants() -> None:
    """Kill all descendants, repeatedly for up to `KILL_SECONDS`, as a descendant may fork before it is killed."""
    deadline = time.monotonic() + KILL_SECONDS
    while (descendant_pids := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(descendant_pids)
        _reap_children()
        time.sleep(0.005)
