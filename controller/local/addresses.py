"""Private addresses of machines, in 127.0.0.0/8 so that real processes can bind them, and apart from those of other clouds.

Linux answers on all of 127.0.0.0/8. The endpoint's port is unique on the host, so it picks the block: 127.<port / 256>.<port % 256>.<n>.
"""

from __future__ import annotations

PER_BLOCK = 253


class AddressesExhausted(Exception):
    """Every address of the cloud belongs to an instance that still runs."""


class Addresses:
    """254 machines and more spill over into the next port's block. A freed address comes back after all others were used."""

    def __init__(self, port: int, blocks: int = 64) -> None:
        self._port = port
        self._total = blocks * PER_BLOCK
        self._next = 0
        self._used: set[str] = set()

    def take(self) -> str:
        for _ in range(self._total):
            block, host = divmod(self._next, PER_BLOCK)
            self._next = (self._next + 1) % self._total
            port = (self._port + block) % 65536
            address = f"127.{port // 256}.{port % 256}.{host + 2}"
            if address not in self._used:
                self._used.add(address)
                return address
        raise AddressesExhausted(f"all {self._total} private addresses are in use")

    def free(self, address: str) -> None:
        self._used.discard(address)
