"""Finds the network interface that has a given address, as Gloo needs the interface's name."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

SIOCGIFADDR = 0x8915  # request for an interface's address (linux/sockios.h)
_NAME_BYTES = 16  # most bytes of an interface's name, with its final zero


def interface_of(address: str) -> str:
    """Return the name of the interface whose first IPv4 address is `address`.

    Raises OSError if no interface has `address`.
    """
    if ipaddress.ip_address(address).is_loopback:
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query_socket:
        for _, interface_name in socket.if_nameindex():
            request = struct.pack("256s", interface_name.encode()[: _NAME_BYTES - 1])
            try:
                response = fcntl.ioctl(query_socket.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # the interface has no IPv4 address
            if socket.inet_ntoa(response[20:24]) == address:
                return interface_name
    raise OSError(f"no network interface of this host has the address {address}")
