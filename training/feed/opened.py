"""Finds the processes that open a FIFO: inotify reports the opening, `/proc` shows the process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Collection

_EVENT = struct.Struct("iIII")
_IN_OPEN = 0x20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_RANKS = (b"RANK=", b"HOROVOD_RANK=", b"OMPI_COMM_WORLD_RANK=", b"NODE_RANK=")


class Opened:
    """Watches FIFOs; `fileno` is readable when a FIFO was opened. Raises OSError at a limit of inotify."""

    def __init__(self) -> None:
        self._fd: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify: raise fs.inotify.max_user_instances")
        self._opened_watches: dict[int, None] = {}

    def fileno(self) -> int:
        return self._fd

    def watch(self, fd: int) -> int:
        """Watch the file of `fd`, under all its names. Returns the number that `look` returns for this file."""
        watch: int = _LIBC.inotify_add_watch(self._fd, f"/proc/self/fd/{fd}".encode(), _IN_OPEN)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "inotify: raise fs.inotify.max_user_watches")
        return watch

    def forget(self, watch: int) -> None:
        _LIBC.inotify_rm_watch(self._fd, watch)

    def look(self) -> list[int]:
        """The watches of opened files that are not yet `done`. The kernel may merge several opens into one event."""
        while True:
            try:
                content = os.read(self._fd, 65_536)
            except BlockingIOError:
                return list(self._opened_watches)
            at = 0
            while at < len(content):
                watch, mask, _, length = _EVENT.unpack_from(content, at)
                if mask & _IN_OPEN:
                    self._opened_watches[watch] = None
                at += _EVENT.size + length

    def done(self, watch: int) -> None:
        self.look()
        self._opened_watches.pop(watch, None)

    def close(self) -> None:
        os.close(self._fd)


def readers(fd: int, own_pids: Collection[int]) -> list[int]:
    """The visible processes that have the file of `fd` open, except this process and `own_pids`."""
    target = os.fstat(fd)
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid() or int(entry) in own_pids:
            continue
        try:
            for name in os.listdir(f"/proc/{entry}/fd"):
                path = f"/proc/{entry}/fd/{name}"
                if os.readlink(path).startswith("/"):
                    file = os.stat(path)
                    if (file.st_ino, file.st_dev) == (target.st_ino, target.st_dev):
                        pids.append(int(entry))
                        break
        except OSError:  # the process has ended, or belongs to another user
            continue
    return pids


def described(pid: int) -> str:
    """Describe a process, as in: process 70, rank 1 (python train.py)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [os.path.basename(word) for word in file.read(1000).decode("utf-8", "replace").split("\0")]
        with open(f"/proc/{pid}/environ", "rb") as file:
            settings = file.read().split(b"\0")
    except OSError:
        return f"process {pid}"
    ranks = [setting.partition(b"=")[2].decode() for key in _RANKS for setting in settings if setting.startswith(key)]
    rank = f", rank {ranks[0]}" if ranks else ""
    return f"process {pid}{rank} ({' '.join(words[:2])[:40]})"


def keep_only(*fds: int) -> None:
    """In a child, close all descriptors of its parent but `fds` and the standard ones."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *fds):
            with contextlib.suppress(OSError):
                os.close(int(name))


def die_with(parent: int) -> None:
    """In a child process, make the kernel kill the child when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
