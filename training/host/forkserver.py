"""A fork server for ps-lite processes: it imports MXNet once and forks a *blank* in milliseconds, which becomes a
scheduler or a server when told.

The import takes seconds of a processor, and the number of processes is known only at a boundary. (`multiprocessing` has
a fork server of its own, but no say in its environment, log and process group.) `serve` is the server's side, the rest
the supervisor's. A request is one datagram with a socket, the blank's *line*: the blank says its pid on it, reads
`{"role": ..., "environment": {...}}`, says `done` when it ends in good order, and its death closes the line. Blanks die
with their server, and the server with its supervisor.
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

FORK_SOCKET = "DYNTRAIN_FORK_SOCKET"  # the file descriptor that the server inherits
MAX_LINE = 64 * 1024
KILL_SECONDS = 5.0
DONE = b"done\n"
Become = Callable[[str, dict[str, str]], None]


def serve(become: Become) -> int:
    """Fork a blank for each request until the supervisor is gone. Call it in a process with one thread: a fork copies
    no others.

    `become` is called in the blank with its role and environment, and returns or raises SystemExit(0) when its work is
    done.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the blanks: their lines tell
    with socket.socket(fileno=int(os.environ.pop(FORK_SOCKET))) as requests:
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
            if not request:
                return 0
            with socket.socket(fileno=descriptors[0]) as line:
                server = os.getpid()
                if os.fork() == 0:
                    requests.close()
                    os._exit(_blank(line, server, become))


def _blank(line: socket.socket, server: int, become: Become) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    try:
        die_with_parent(server)
        line.sendall(f"{os.getpid()}\n".encode())
        with line.makefile("rb") as reader:
            text = reader.readline(MAX_LINE)
    except (OSError, SystemExit):  # the server is gone
        return 1
    if not text:
        return 0
    order = json.loads(text)
    code: object = 0
    try:
        become(order["role"], order["environment"])
    except SystemExit as end:
        code = end.code or 0
    if code == 0:
        with contextlib.suppress(OSError):
            line.sendall(DONE)
    return code if isinstance(code, int) else 1


class ForkServerSocket(InheritedSocket):
    """For the requests."""

    variable, kind = FORK_SOCKET, socket.SOCK_SEQPACKET

    async def fork(self) -> Blank:
        """A blank, which is there when `started` says so: a server that still imports comes to it later. Raises OSError
        when the server is gone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._ours, [b"f"], [theirs.fileno()])
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        except OSError:
            ours.close()
            raise
        return Blank(reader, writer)


def _owner(pid: int) -> int:
    """Raises OSError when it is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nUid:")[2].split(maxsplit=1)[0])


class Blank:
    """A process of the fork server, seen from the supervisor. `pid` is 0 until it has started."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._handle: int | None = None  # names this process even when its pid is another's
        self.pid = 0

    async def started(self, uid: int | None = None) -> bool:
        """Once it waits for its role; False when it, or the server before it was forked, has ended.

        `uid`: whose the blanks are. What it says may be anybody's number, and root would kill that process.
        """
        try:
            self.pid = int(await self._reader.readline() or 0)
            if self.pid:
                self._handle = os.pidfd_open(self.pid)
                if uid is not None and _owner(self.pid) != uid:
                    raise PermissionError(f"process {self.pid} is somebody else's")
        except (OSError, ValueError):
            self.pid = 0
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
        return self.pid != 0

    async def give(self, role: str, environment: Mapping[str, str]) -> None:
        """One that has not started yet finds its role when it has. Raises OSError when it is gone."""
        self._writer.write(json.dumps({"role": role, "environment": dict(environment)}).encode() + b"\n")
        await self._writer.drain()

    async def ended(self) -> bool:
        """At the end of the process, after `started`; whether that was in good order."""
        try:
            return await self._reader.readline() == DONE and not await self._reader.read()
        except OSError:
            return False
        finally:
            self._writer.close()

    async def stop(self) -> None:
        """Kill it, also before it has started. Returns within KILL_SECONDS."""
        self._writer.close()  # one that is forked later finds nobody to speak to, and ends
        handle, self._handle = self._handle, None
        if handle is None:
            return
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, gone.set)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with timeout(KILL_SECONDS):
                    await gone.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
