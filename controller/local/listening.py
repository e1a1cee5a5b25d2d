"""Listen on ports of this machine. An error names the option that chooses another port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import ExitStack

from dyntrain.controller.local.errors import PortInUse


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Listen on a port; 0 means any free port. Raises PortInUse, which says what to do."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        in_use = error.errno == errno.EADDRINUSE
        problem = "is in use; stop what listens there or" if in_use else f"cannot be used ({error.strerror});"
        raise PortInUse(f"port {port} on {host} {problem} choose another with {option}") from error
    return listener


def must_be_free(host: str, ports: Mapping[str, int]) -> None:
    """Check that the ports of all options are free and differ. Raises PortInUse."""
    with ExitStack() as stack:
        for option, port in ports.items():
            stack.enter_context(listen(host, port, option))
