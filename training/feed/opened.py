"""Finds the processes that open a FIFO: inotify reports the opening, `/proc` shows the process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Collection

_EVENT = struct.Struct("iIII")  # inotify_event: watch, mask, cookie, length of the name
_IN_OPEN = 0x20  # inotify's mask for an opened file
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_RANK_VARIABLES = (
    b"RANK=",
    b"HOROVOD_RANK=",
    b"OMPI_COMM_WORLD_RANK=",
    b"NODE_RANK=",
)  # environment variables with a process's rank


class FifoWatcher:
    """Watches FIFOs by inotify: the descriptor `fileno()` becomes readable when a process opens a FIFO.

    Raises OSError if a limit of inotify is reached.
    """

    def __init__(self) -> None:
        self._fd: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify: raise fs.inotify.max_user_instances")
        self._opened_watches: dict[int, None] = {}

    def fileno(self) -> int:
        return self._fd

    def watch(self, fd: int) -> int:
        """Watch the file that `fd` refers to.

        Returns a watch number, which `opened_watches` contains once the file was opened.
        """
        watch: int = _LIBC.inotify_add_watch(self._fd, f"/proc/self/fd/{fd}".encode(), _IN_OPEN)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "inotify: raise fs.inotify.max_user_watches")
        return watch

    def stop_watching(self, watch: int) -> None:
        _LIBC.inotify_rm_watch(self._fd, watch)

    def opened_watches(self) -> list[int]:
        """Return the watch numbers of files that were opened, until `mark_handled` is called for the number.

        A watch number appears once even if the file was opened several times, as the kernel may merge several opens
        into one event.
        """
        while True:
            try:
                event_bytes = os.read(self._fd, 65_536)
            except BlockingIOError:
                return list(self._opened_watches)
            offset = 0
            while offset < len(event_bytes):
                watch, mask, _, name_length = _EVENT.unpack_from(event_bytes, offset)
                if mask & _IN_OPEN:
                    self._opened_watches[watch] = None
                offset += _EVENT.size + name_length

    def mark_handled(self, watch: int) -> None:
        self.opened_watches()
        self._opened_watches.pop(watch, None)

    def close(self) -> None:
        os.close(self._fd)


def pids_with_open_file(fd: int, own_pids: Collection[int]) -> list[int]:
    """Return the pids of processes in `/proc` that have the file of `fd` open, except this process and `own_pids`."""
    target_state = os.fstat(fd)
    reader_pids = []
    for process_entry in os.listdir("/proc"):
        if not process_entry.isdecimal() or int(process_entry) == os.getpid() or int(process_entry) in own_pids:
            continue
        try:
            for fd_name in os.listdir(f"/proc/{process_entry}/fd"):
                fd_path = f"/proc/{process_entry}/fd/{fd_name}"
                if os.readlink(fd_path).startswith("/"):
                    file_state = os.stat(fd_path)
                    if (file_state.st_ino, file_state.st_dev) == (target_state.st_ino, target_state.st_dev):
                        reader_pids.append(int(process_entry))
                        break
        except OSError:  # the process has ended, or belongs to another user
            continue
    return reader_pids


def describe_process(pid: int) -> str:
    """Return a description of a process, such as "process 70, rank 1 (python train.py)"."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command_words = [os.path.basename(word) for word in file.read(1000).decode("utf-8", "replace").split("\0")]
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return f"process {pid}"
    rank_values = [
        variable.partition(b"=")[2].decode()
        for variable_prefix in _RANK_VARIABLES
        for variable in variables
        if variable.startswith(variable_prefix)
    ]
    rank_text = f", rank {rank_values[0]}" if rank_values else ""
    return f"process {pid}{rank_text} ({' '.join(command_words[:2])[:40]})"


def close_other_descriptors(*fds: int) -> None:
    """In a child process, close all descriptors of its parent except `fds`, 0, 1 and 2."""
    for fd_name in os.listdir("/proc/self/fd"):
        if int(fd_name) not in (0, 1, 2, *fds):
            with contextlib.suppress(OSError):
                os.close(int(fd_name))


def die_with_parent(parent: int) -> None:
    """In a child process, make the kernel kill the child when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
