"""Finds the descendants of a process in /proc, on Linux only.

The module `exec_child` contains `die_with_parent`, as that module must run without dyntrain's packages.
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
    """Make this process the parent of descendants whose own parent ends, so that `descendants` is complete."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """Return the pids of all descendants of the process `root`, including zombies, from /proc."""
    pids_by_parent: dict[int, list[int]] = {}
    for process_folder in Path("/proc").iterdir():
        if not process_folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent_pid = int((process_folder / "stat").read_text().rpartition(")")[2].split()[1])
            pids_by_parent.setdefault(parent_pid, []).append(int(process_folder.name))
    descendant_pids: list[int] = []
    unvisited_pids = [root]
    while unvisited_pids:
        child_pids = pids_by_parent.get(unvisited_pids.pop(), [])
        descendant_pids.extend(child_pids)
        unvisited_pids.extend(child_pids)
    return descendant_pids


def ended(pid: int, wait_seconds: float = 0.0) -> bool:
    """Whether the process has ended, or ends within `wait_seconds`. A zombie process is treated as ended.

    A pidfd is used, as /proc still shows a killed process until its last thread has ended (0.1 s with 1.5 GB). The
    signal of `die_with_parent` arrives earlier, when the thread that forked the child ends.
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
    """Return the pids of this user's processes that were started with `assignment` (`NAME=value`) as a variable."""
    assignment_bytes = assignment.encode()
    matching_pids = []
    for process_folder in Path("/proc").iterdir():
        if process_folder.name.isdigit() and int(process_folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if assignment_bytes in (process_folder / "environ").read_bytes().split(b"\0"):
                    matching_pids.append(int(process_folder.name))
    return matching_pids


def kill_all(pids: list[int], signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Send the signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)
