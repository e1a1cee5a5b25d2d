"""What systemd is told of the service: that it has started, and again and again that it still works (sd_notify(3); the
unit's Type=notify and WatchdogSec).

The process that systemd started, above the bootstrap, does the telling, and SIGUSR1 of the bootstrap has it do so. So
nothing that a node runs for people can speak for it: the unit says NotifyAccess=main, and the socket's name is in
nobody's environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, MutableMapping

STATE = b"READY=1\nWATCHDOG=1"


def take_notifier(environment: MutableMapping[str, str]) -> Callable[[], None] | None:
    """Tells systemd. None where it did not ask to be told."""
    address = environment.pop("NOTIFY_SOCKET", "")
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        environment.pop(name, None)
    if not address:
        return None
    name = "\0" + address[1:] if address.startswith("@") else address

    def tell() -> None:
        # systemd is busy or starts anew: the next beat comes soon
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.sendto(STATE, name)

    return tell


def beat_of(parent: int) -> Callable[[], None]:
    """Has the process above tell systemd, as long as it is our parent."""

    def beat() -> None:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGUSR1)

    return beat
