"""Fork server for ps-lite's processes: a process that imports MXNet once and then forks *blanks* in milliseconds.

A blank is an idle process that becomes a ps-lite scheduler or server when it gets a role. Without a fork server, each
start of a ps-lite process would import MXNet, which takes seconds. (The fork server of `multiprocessing` allows no
choice of environment, log and process group.) The function `serve` runs in the fork server, and the classes are used by
the supervisor. The supervisor requests a blank by one datagram with the blank's socket. The blank writes its pid to its
socket, reads `{"role": ..., "environment": {...}}` from its socket, and writes `done` when its work has succeeded.
When a blank dies, its socket is closed. Blanks are killed when the fork server ends, and the fork server is
killed when its supervisor ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from dyntrain.training.host.exec_child import die_with_parent
from dyntrain.training.host.inherited import InheritedSocket
from dyntrain.training.timeouts import timeout

FORK_SOCKET = "DYNTRAIN_FORK_SOCKET"  # variable with the server's inherited file descriptor
MAX_LINE_BYTES = 64 * 1024  # of the text line with a blank's role
KILL_SECONDS = 5.0  # for a killed process to end
DONE = b"done\n"  # sent by a blank whose work is done
RunRole = Callable[[str, dict[str, str]], None]  # gets the role and its environment


def serve(become: RunRole) -> int:
    """Fork a blank for each request until the supervisor closes the socket.

    Call `serve` in a process with one thread, as a fork copies only the calling thread.

    `become` is called in the blank with the blank's role and environment. When the blank's work is done, `become`
    returns or raises SystemExit(0).
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the blanks: their sockets close
    with socket.socket(fileno=int(os.environ.pop(FORK_SOCKET))) as request_socket:
        while True:
            request, descriptors, _, _ = socket.recv_fds(request_socket, 1, 1)
            if not request:
                return 0
            with socket.socket(fileno=descriptors[0]) as blank_socket:
                server_pid = os.getpid()
                if os.fork() == 0:
                    request_socket.close()
                    os._exit(_run_blank(blank_socket, server_pid, become))


def _run_blank(blank_socket: socket.socket, server_pid: int, become: RunRole) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    try:
        die_with_parent(server_pid)
        blank_socket.sendall(f"{os.getpid()}\n".encode())
        with blank_socket.makefile("rb") as socket_reader:
            role_line = socket_reader.readline(MAX_LINE_BYTES)
    except (OSError, SystemExit):  # the server is gone
        return 1
    if not role_line:
        return 0
    role_message = json.loads(role_line)
    exit_code: object = 0
    try:
        become(role_message["role"], role_message["environment"])
    except SystemExit as exit_request:
        exit_code = exit_request.code or 0
    if exit_code == 0:
        with contextlib.suppress(OSError):
            blank_socket.sendall(DONE)
    return exit_code if isinstance(exit_code, int) else 1


class ForkServerSocket(InheritedSocket):
    """The supervisor's socket for requests to its fork server."""

    variable, kind = FORK_SOCKET, socket.SOCK_SEQPACKET  # environment variable, type of the sockets

    async def fork(self) -> Blank:
        """Request a blank from the fork server.

        The blank may not exist yet, so call `Blank.started` to wait for the blank. A blank takes longer to start while
        the fork server still imports MXNet.

        Raises OSError if the fork server has ended.
        """
        parent_end, child_end = socket.socketpair()
        try:
            with child_end:
                socket.send_fds(self._parent_end, [b"f"], [child_end.fileno()])
            reader, writer = await asyncio.open_connection(sock=parent_end, limit=MAX_LINE_BYTES)
        except OSError:
            parent_end.close()
            raise
        return Blank(reader, writer)


def _owner_uid(pid: int) -> int:
    """Return the user id of the process `pid`. Raises OSError if there is no such process."""
    status_text = Path(f"/proc/{pid}/status").read_text()
    return int(status_text.partition("\nUid:")[2].split(maxsplit=1)[0])


class Blank:
    """The supervisor's handle of a blank. `pid` is 0 until the blank has started."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._handle: int | None = None  # pidfd: refers to this process even if its pid is reused
        self.pid = 0

    async def started(self, uid: int | None = None) -> bool:
        """Wait until the blank is ready for its role. Returns False if the blank or the fork server has ended.

        `uid` is the id of the user that the blank must belong to. A blank reports its own pid, and with a false pid a
        supervisor that runs as root might kill another user's process.
        """
        try:
            self.pid = int(await self._reader.readline() or 0)
            if self.pid:
                self._handle = os.pidfd_open(self.pid)
                if uid is not None and _owner_uid(self.pid) != uid:
                    raise PermissionError(f"process {self.pid} belongs to another user")
        except (OSError, ValueError):
            self.pid = 0
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
        return self.pid != 0

    async def give(self, role: str, environment: Mapping[str, str]) -> None:
        """Send the blank its role and environment. `give` may be called before the blank has started.

        Raises OSError if the blank has ended.
        """
        self._writer.write(json.dumps({"role": role, "environment": dict(environment)}).encode() + b"\n")
        await self._writer.drain()

    async def ended(self) -> bool:
        """Wait until the blank, which must have started, ends. Returns whether the blank's work succeeded."""
        try:
            return await self._reader.readline() == DONE and not await self._reader.read()
        except OSError:
            return False
        finally:
            self._writer.close()

    async def stop(self) -> None:
        """Kill the blank, even if it has not started yet. Waits at most `KILL_SECONDS` for the end of the blank."""
        self._writer.close()  # a blank that is forked later finds the socket closed, and ends
        process_handle, self._handle = self._handle, None
        if process_handle is None:
            return
        exit_event = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process_handle, exit_event.set)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process_handle, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with timeout(KILL_SECONDS):
                    await exit_event.wait()
        finally:
            loop.remove_reader(process_handle)
            os.close(process_handle)
