"""The watchdog of systemd: reports that the service has started, then regularly that it still works.

See sd_notify(3); the unit has Type=notify and WatchdogSec. The process that systemd started, which is the bootstrap's
parent, sends these messages each time the bootstrap sends it SIGUSR1. No program of the job can forge them: the unit
says NotifyAccess=main, and no environment has the socket's name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, MutableMapping

STATE = b"READY=1\nWATCHDOG=1"


def take_notifier(environment: MutableMapping[str, str]) -> Callable[[], None] | None:
    """Remove the socket from the environment; returns what notifies systemd, or None if it expects nothing."""
    address = environment.pop("NOTIFY_SOCKET", "")
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        environment.pop(name, None)
    if not address:
        return None
    name = "\0" + address[1:] if address.startswith("@") else address

    def tell() -> None:
        # systemd is busy or restarting: the next beat comes soon
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.sendto(STATE, name)

    return tell


def beat_of(parent: int) -> Callable[[], None]:
    """Return what makes the parent process notify systemd, while it is still our parent."""

    def beat() -> None:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGUSR1)

    return beat
