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
    """Pids of the children of process `root`, their children and so on, from /proc, including zombies."""
    children: dict[int, list[int]] = {}
    for process_folder in Path("/proc").iterdir():
        if not process_folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent_pid = int((process_folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent_pid, []).append(int(process_folder.name))
    found_pids: list[int] = []
    unvisited_pids = [root]
    while unvisited_pids:
        child_pids = children.get(unvisited_pids.pop(), [])
        found_pids.extend(child_pids)
        unvisited_pids.extend(child_pids)
    return found_pids


def ended(pid: int, wait_seconds: float = 0.0) -> bool:
    """Whether the process ends within `wait_seconds` or has ended. A zombie counts as ended.

    /proc and getppid() do not show reliably that a process was killed: the process stays until its last thread has
    ended (0.1 s with 1.5 GB), while the signal of `die_with_parent` comes when the first thread ends.
    """
    try:
        process_descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(process_descriptor, select.POLLIN)
        return bool(poller.poll(wait_seconds * 1000))
    finally:
        os.close(process_descriptor)


def with_environment(assignment: str) -> list[int]:
    """Pids of this user's processes that were started with `assignment` (`NAME=value`) in their environment."""
    expected_bytes = assignment.encode()
    found_pids = []
    for process_folder in Path("/proc").iterdir():
        if process_folder.name.isdigit() and int(process_folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if expected_bytes in (process_folder / "environ").read_bytes().split(b"\0"):
                    found_pids.append(int(process_folder.name))
    return found_pids


def kill_all(pids: list[int], signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Send the signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)
