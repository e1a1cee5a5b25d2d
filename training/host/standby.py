"""Warm spares: what passes between a supervisor and a worker process that it keeps ready to take over.

A spare does everything up to its admission: imports MXNet, builds its model, loads its data. Then it says so on a
socket that it inherited, and waits there for the word to go on. The end of the socket means that the supervisor is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from dyntrain.training.host.inherited import InheritedSocket

STANDBY = "DYNTRAIN_STANDBY_SOCKET"  # the file descriptor that a spare inherits


def wait_until_needed() -> bool:
    """Returns at once, False, in a process that is no spare. SystemExit(0) when the supervisor is gone or needs the
    spare no more.
    """
    descriptor = os.environ.pop(STANDBY, None)
    if descriptor is None:
        return False
    with socket.socket(fileno=int(descriptor)) as line:
        with contextlib.suppress(OSError):  # the word may be waiting all the same
            line.sendall(b"r")
        with contextlib.suppress(OSError):
            if line.recv(1):
                return True
    raise SystemExit(0)


class StandbySocket(InheritedSocket):
    """Keep it open until the spare's process has ended."""

    variable = STANDBY

    async def ready(self) -> bool:
        """Once the spare has built its model; False when it ended before."""
        with contextlib.suppress(OSError):
            return bool(await asyncio.get_running_loop().sock_recv(self._ours, 1))
        return False

    def go(self) -> bool:
        """The word to go on; a spare that is not ready yet finds it when it is. False: it is gone."""
        with contextlib.suppress(OSError):
            self._ours.send(b"1")
            return True
        return False
