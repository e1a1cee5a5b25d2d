"""Warm spares: protocol between a supervisor and a worker process that it keeps ready to take over.

A spare does everything up to its admission: imports MXNet, builds its model, loads its data. Then the spare reports on
an inherited socket that it is ready, and waits for the order to continue. A closed socket means that the supervisor is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from dyntrain.training.host.inherited import InheritedSocket

STANDBY = "DYNTRAIN_STANDBY_SOCKET"  # inherited file descriptor of a spare


def wait_until_needed() -> bool:
    """Wait for the order to take over, and return True. Returns False at once in a process that is no spare.

    Raises SystemExit(0) if the supervisor is gone or no longer needs the spare.
    """
    descriptor = os.environ.pop(STANDBY, None)
    if descriptor is None:
        return False
    with socket.socket(fileno=int(descriptor)) as line:
        with contextlib.suppress(OSError):  # the order may have been sent nevertheless
            line.sendall(b"r")
        with contextlib.suppress(OSError):
            if line.recv(1):
                return True
    raise SystemExit(0)


class StandbySocket(InheritedSocket):
    """The supervisor's end of the socket to a spare. Keep the socket open until the spare's process has ended."""

    variable = STANDBY

    async def ready(self) -> bool:
        """Wait until the spare has built its model. Returns False if the spare ended before that."""
        with contextlib.suppress(OSError):
            return bool(await asyncio.get_running_loop().sock_recv(self._parent_end, 1))
        return False

    def go(self) -> bool:
        """Order the spare to take over, also before the spare is ready. Returns False if the spare is gone."""
        with contextlib.suppress(OSError):
            self._parent_end.send(b"1")
            return True
        return False
