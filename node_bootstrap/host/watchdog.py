"""Notifies systemd's watchdog that the service has started, then regularly that the service still works.

The systemd unit has Type=notify and WatchdogSec (see sd_notify(3)). The process that systemd starts is the parent of
the node's program. The parent process sends a message to systemd each time it receives SIGUSR1 from the node's program.
No program of the job can forge a message, since systemd accepts messages only from the parent process
(NotifyAccess=main). The job's programs also do not find the name of systemd's socket in their environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, MutableMapping

SYSTEMD_MESSAGE = b"READY=1\nWATCHDOG=1"


def take_notifier(environment: MutableMapping[str, str]) -> Callable[[], None] | None:
    """Remove the name of systemd's socket from the environment; returns a function that notifies systemd.

    Returns None if the environment does not contain the socket's name.
    """
    socket_name = environment.pop("NOTIFY_SOCKET", "")
    for variable in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        environment.pop(variable, None)
    if not socket_name:
        return None
    socket_address = "\0" + socket_name[1:] if socket_name.startswith("@") else socket_name

    def notify_systemd() -> None:
        # if systemd is busy or restarting, the next message follows soon
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending_socket:
            sending_socket.sendto(SYSTEMD_MESSAGE, socket_address)

    return notify_systemd


def make_beat(parent_pid: int) -> Callable[[], None]:
    """Return a function that makes the parent process notify systemd, unless the parent process has died."""

    def send_beat() -> None:
        if os.getppid() == parent_pid:
            os.kill(parent_pid, signal.SIGUSR1)

    return send_beat
