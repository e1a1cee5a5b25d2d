"""Listen on ports of this machine. If a port cannot be used, the error's message names the command-line option that
chooses another port.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import ExitStack

from dyntrain.controller.local.errors import PortInUse


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a socket that listens on a port; `port` 0 means any free port. Raises PortInUse, whose message says what
    to do.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        is_in_use = error.errno == errno.EADDRINUSE
        problem = "is in use; stop what listens there or" if is_in_use else f"cannot be used ({error.strerror});"
        raise PortInUse(f"port {port} on {host} {problem} choose another with {option}") from error
    return listener


def check_ports_are_free(host: str, ports: Mapping[str, int]) -> None:
    """Raise PortInUse unless the ports of all options are free and different from each other."""
    with ExitStack() as exit_stack:
        for option, port in ports.items():
            exit_stack.enter_context(listen(host, port, option))
