"""Private IP addresses of machines. Machines of two embedded clouds on one host have different addresses."""

from __future__ import annotations

from collections.abc import Sequence

ADDRESSES_PER_BLOCK = 253


class AddressesExhausted(Exception):
    """Raised when every private address of the embedded cloud belongs to an instance that still runs."""


def loopback_addresses(port: int, block_count: int = 64) -> list[str]:
    """The addresses, in 127.0.0.0/8, for machines of a cloud without network namespaces. On Linux, processes can bind
    every address in 127.0.0.0/8.

    The endpoint's `port` is unique on this host, and selects the block of addresses 127.<port / 256>.<port % 256>.<n>.
    When every address of a block is used, the addresses of the next port's block are used.
    """
    ports = [(port + block_number) % 65536 for block_number in range(block_count)]
    return [
        f"127.{port_of_block // 256}.{port_of_block % 256}.{host_number + 2}"
        for port_of_block in ports
        for host_number in range(ADDRESSES_PER_BLOCK)
    ]


class Addresses:
    """A pool of IP addresses. A released address is used again only after all other free addresses."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._next_index = 0
        self._used_addresses: set[str] = set()

    def take_address(self) -> str:
        for _ in self._addresses:
            address = self._addresses[self._next_index]
            self._next_index = (self._next_index + 1) % len(self._addresses)
            if address not in self._used_addresses:
                self._used_addresses.add(address)
                return address
        raise AddressesExhausted(f"all {len(self._addresses)} private addresses are in use")

    def release_address(self, address: str) -> None:
        self._used_addresses.discard(address)
