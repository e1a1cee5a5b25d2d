"""Notifies systemd's watchdog that the service has started, then regularly that the service still works.

See sd_notify(3): the unit has Type=notify and WatchdogSec. systemd starts the bootstrap's parent process, which sends a
message each time the bootstrap sends it SIGUSR1. No program of the job can forge the messages: the unit has
NotifyAccess=main, and no other environment contains the socket's name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, MutableMapping

NOTIFICATION = b"READY=1\nWATCHDOG=1"


def take_notifier(environment: MutableMapping[str, str]) -> Callable[[], None] | None:
    """Remove the socket's name from the environment; returns a function that notifies systemd, None without a name."""
    address = environment.pop("NOTIFY_SOCKET", "")
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        environment.pop(name, None)
    if not address:
        return None
    name = "\0" + address[1:] if address.startswith("@") else address

    def notify() -> None:
        # if systemd is busy or restarting, the next message follows soon
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(NOTIFICATION, name)

    return notify


def beat_of(parent: int) -> Callable[[], None]:
    """Return the function that makes the parent process notify systemd, unless the parent has died."""

    def beat() -> None:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGUSR1)

    return beat
