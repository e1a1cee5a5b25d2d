"""Hosts on links of a given speed, on this machine: both directions of each host's link are held to it by `tc`'s token
bucket filter. Wants root and iproute2.
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
        """The command as it runs on host `number`."""
        address = self.addresses[number]
        return [*self._network.entrance(address, address), *command]

    def sent(self, number: int) -> int:
        """Bytes that left host `number` over its link."""
        link = self._network.link(self.addresses[number])
        return int(Path(f"/sys/class/net/{link}/statistics/rx_bytes").read_text())  # of its end on this side


@contextlib.contextmanager
def hosts(count: int, megabits: float) -> Iterator[Hosts]:
    """They are gone afterwards, whatever happened. Raises NamespacesUnavailable, CalledProcessError."""
    network = Namespaces()
    network.start()
    try:
        machines = Hosts(network, count)
        for number, address in enumerate(machines.addresses):
            subprocess.run(machines.within(number, shaped("eth0", megabits)), check=True, capture_output=True)
            subprocess.run(shaped(network.link(address) or "", megabits), check=True, capture_output=True)
        yield machines
    finally:
        network.stop()


def shaped(device: str, megabits: float) -> list[str]:
    """What holds all that leaves the device to the speed."""
    bucket = ["tbf", "rate", f"{megabits:g}mbit", "burst", BURST, "latency", LATENCY]
    return ["tc", "qdisc", "add", "dev", device, "root", *bucket]
