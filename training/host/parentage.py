"""All descendants of a process, and what is done with them: Linux only, read from /proc. How a process dies with its
parent is in `exec_child`, which must run without our packages.
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
    """Descendants whose parent ends become children of this process, so none of them can escape `descendants`."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """Children of `root`, their children and so on, as /proc has them now; zombies too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(below)
    return found


def ended(pid: int, seconds: float = 0.0) -> bool:
    """Whether the process has ended, or does so within `seconds`. A zombie has. What /proc lists and what getppid()
    says cannot tell: a killed process stays there until the last of its threads is gone, 0.1 s with 1.5 GB, while the
    signal of `die_with_parent` comes with the first of them.
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
    """Processes of this user that were started with `entry` (`NAME=value`) in their environment, however they are
    related.
    """
    wanted = entry.encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
    return found


def kill_all(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Sends the signal to each; those that are gone already do not matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
