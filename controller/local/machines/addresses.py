"""Private addresses of machines, distinct from the addresses of other clouds on this host."""

from __future__ import annotations

from collections.abc import Sequence

ADDRESSES_PER_BLOCK = 253


class AddressesExhausted(Exception):
    """Raised when every address of the cloud belongs to an instance that still runs."""


def on_loopback(port: int, blocks: int = 64) -> list[str]:
    """Addresses for a cloud without namespaces, in 127.0.0.0/8: on Linux, processes can bind every address of this
    network.

    The endpoint's `port` is unique on the host, so it selects the block 127.<port / 256>.<port % 256>.<n>. When a block
    is full, the next port's block follows.
    """
    ports = [(port + block) % 65536 for block in range(blocks)]
    return [
        f"127.{block_port // 256}.{block_port % 256}.{host + 2}"
        for block_port in ports
        for host in range(ADDRESSES_PER_BLOCK)
    ]


class Addresses:
    """A pool of addresses. A freed address is used again after all other addresses."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._next = 0
        self._used: set[str] = set()

    def take(self) -> str:
        for _ in self._addresses:
            address = self._addresses[self._next]
            self._next = (self._next + 1) % len(self._addresses)
            if address not in self._used:
                self._used.add(address)
                return address
        raise AddressesExhausted(f"all {len(self._addresses)} private addresses are in use")

    def free(self, address: str) -> None:
        self._used.discard(address)
