"""Processes that die with their parent, and all descendants of a process: Linux only, read from /proc.

`PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process. So whoever starts such children does it from a thread that
lives as long as they may (as `controller.local.spawner` does).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """From now on the end of the parent sends `number` to this process. Exits at once when the parent is no longer `parent`."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise SystemExit(1)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process, so none of them can escape `descendants`."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


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


def with_environment(entry: str) -> list[int]:
    """Processes of this user that were started with `entry` (`NAME=value`) in their environment, however they are related."""
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
