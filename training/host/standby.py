"""Warm spares: the protocol between a supervisor and an additional worker process that is ready to take over.

A spare does everything up to its admission: imports MXNet, builds its model, loads its data. A spare reports on an
inherited socket that it is ready, and then waits for the order to continue. If the socket is closed, the supervisor has
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from dyntrain.training.host.inherited import InheritedSocket

STANDBY_VARIABLE = "DYNTRAIN_STANDBY_SOCKET"  # for a spare's inherited file descriptor


def wait_until_needed() -> bool:
    """Wait for the supervisor's order to take over, and return True.

    In a process that is no spare, returns False at once.

    Raises SystemExit(0) if the supervisor has ended or no longer needs the spare.
    """
    descriptor = os.environ.pop(STANDBY_VARIABLE, None)
    if descriptor is None:
        return False
    with socket.socket(fileno=int(descriptor)) as spare_socket:
        with contextlib.suppress(OSError):  # the order may have been sent nevertheless
            spare_socket.sendall(b"r")
        with contextlib.suppress(OSError):
            if spare_socket.recv(1):
                return True
    raise SystemExit(0)


class StandbySocket(InheritedSocket):
    """The supervisor's end of the socket to a spare. Keep the socket open until the spare's process has ended."""

    variable = STANDBY_VARIABLE

    async def ready(self) -> bool:
        """Wait until the spare reports that it is ready. Returns False if the spare ended without a report."""
        with contextlib.suppress(OSError):
            return bool(await asyncio.get_running_loop().sock_recv(self._parent_end, 1))
        return False

    def go(self) -> bool:
        """Order the spare to take over, as soon as the spare is ready. Returns False if the spare has ended."""
        with contextlib.suppress(OSError):
            self._parent_end.send(b"1")
            return True
        return False
