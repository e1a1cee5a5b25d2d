"""Computes how many bytes of a network's gradients each ps-lite server has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dyntrain.training.engine.dealing import server_of
from dyntrain.training.engine.store import split
from dyntrain.training.model.networks import Key


@dataclass(frozen=True)
class Dealt:
    """Bytes of gradients on each server, and of the largest key."""

    servers: tuple[int, ...]
    largest: int

    @property
    def total(self) -> int:
        return sum(self.servers)

    @property
    def fullest(self) -> int:
        """Bytes on the server with the most bytes."""
        return max(self.servers)

    @property
    def emptiest(self) -> int:
        return min(self.servers)


def deal(keys: Sequence[Key], servers: int) -> Dealt:
    parts = split(keys, servers)
    sizes = [0] * servers
    for part in parts:
        sizes[server_of(part.number, servers)] += part.size
    return Dealt(tuple(sizes), max(part.size for part in parts))
