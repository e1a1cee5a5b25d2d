"""Descendants of a process, read from /proc: Linux only.

`exec_child`, which must run without dyntrain's packages, binds a process's life to its parent's.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

from dyntrain.training.host.exec_child import die_with_parent, prctl

__all__ = ["adopt_orphans", "descendants", "die_with_parent", "ended", "kill_all", "with_environment"]
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that `descendants` always finds them."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """The children of `root`, their children and so on, from /proc, including zombies."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    pids: list[int] = []
    waiting = [root]
    while waiting:
        child_pids = children.get(waiting.pop(), [])
        pids.extend(child_pids)
        waiting.extend(child_pids)
    return pids


def ended(pid: int, seconds: float = 0.0) -> bool:
    """Whether the process ends within `seconds` or has ended. A zombie counts as ended.

    /proc and getppid() do not show it: a killed process stays until its last thread has ended (0.1 s with 1.5 GB),
    while the signal of `die_with_parent` comes when the first thread ends.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(process)


def with_environment(entry: str) -> list[int]:
    """Processes of this user that were started with `entry` (`NAME=value`) in their environment."""
    expected = entry.encode()
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if expected in (process / "environ").read_bytes().split(b"\0"):
                    pids.append(int(process.name))
    return pids


def kill_all(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send the signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
