"""Computes how many bytes of a network's gradients are assigned to each ps-lite server. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dyntrain.training.engine.dealing import server_of
from dyntrain.training.engine.store import split
from dyntrain.training.model.networks import Key


@dataclass(frozen=True)
class ServerLoad:
    """The bytes of gradients that each ps-lite server gets, and the bytes of the largest key."""

    servers: tuple[int, ...]  # bytes on each server
    largest: int  # bytes of the largest key

    @property
    def total_bytes(self) -> int:
        return sum(self.servers)

    @property
    def max_server_bytes(self) -> int:
        """The bytes of gradients on the server that gets the most bytes."""
        return max(self.servers)

    @property
    def min_server_bytes(self) -> int:
        return min(self.servers)


def deal(keys: Sequence[Key], servers: int) -> ServerLoad:
    key_parts = split(keys, servers)
    server_bytes = [0] * servers
    for key_part in key_parts:
        server_bytes[server_of(key_part.number, servers)] += key_part.size
    return ServerLoad(tuple(server_bytes), max(key_part.size for key_part in key_parts))
