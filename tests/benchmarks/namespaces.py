"""Hosts on this machine with links of a given speed, limited in both directions by `tc`'s token bucket filter.

Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from dyntrain.controller.local.machines.namespaces import Namespaces

BURST, LATENCY = "256kb", "50ms"


class Hosts:
    def __init__(self, network: Namespaces, count: int) -> None:
        self._network = network
        self.addresses = network.addresses[:count]

    def within(self, number: int, command: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs on host `number`."""
        address = self.addresses[number]
        return [*self._network.command_prefix(address, address), *command]

    def sent(self, number: int) -> int:
        """Bytes that left host `number` over its link."""
        link = self._network.link_of(self.addresses[number])
        return int(Path(f"/sys/class/net/{link}/statistics/rx_bytes").read_text())  # received at the link's outer end


@contextlib.contextmanager
def hosts(count: int, megabits: float) -> Iterator[Hosts]:
    """Create hosts, and remove them at the end in any case. Raises NamespacesUnavailable, CalledProcessError."""
    network = Namespaces()
    network.start()
    try:
        machines = Hosts(network, count)
        for number, address in enumerate(machines.addresses):
            subprocess.run(machines.within(number, shaped("eth0", megabits)), check=True, capture_output=True)
            subprocess.run(shaped(network.link_of(address) or "", megabits), check=True, capture_output=True)
        yield machines
    finally:
        network.stop()


def shaped(device: str, megabits: float) -> list[str]:
    """The command that limits the device's outgoing traffic to the speed."""
    bucket = ["tbf", "rate", f"{megabits:g}mbit", "burst", BURST, "latency", LATENCY]
    return ["tc", "qdisc", "add", "dev", device, "root", *bucket]
