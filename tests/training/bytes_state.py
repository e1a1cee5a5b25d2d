"""A training state that is so many bytes, all alike: for what hands states around and does not look into them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.state.block import StateError, allocate

AT = Position(epoch=1, offset=0, step=2)
SIZE = 3000
HEAD = 100


class Bytes:
    """A state of `SIZE` bytes that are all alike, and where it stands."""

    layout = "x"
    gradient_keys: tuple[Any, ...] = ()
    nbytes = SIZE

    def __init__(self, fill: int, seen: Callable[[str], None] = lambda what: None) -> None:
        self.fill, self.installed, self.seen = fill, 0, seen

    def statistics(self) -> tuple[Any, Any]:
        return np.zeros(0), np.zeros(0)

    def set_statistics(self, means: Any, variances: Any) -> None:
        """It has none."""

    def sampled_checksums(self, position: Position) -> tuple[tuple[str, str], ...]:
        return ()

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        self.seen("copied")
        block = allocate(HEAD + SIZE)
        block[:] = position.model_dump_json().encode().ljust(HEAD) + bytes([self.fill]) * SIZE
        return block

    def checks(self, block: Any) -> tuple[tuple[str, str], ...]:
        self.seen("compared")
        return (("all", hashlib.sha256(block).hexdigest()[:16]),)

    def install(self, block: Any) -> Position:
        self.seen("installed")
        if len(block) != HEAD + SIZE:
            raise StateError("cut short")
        self.fill, self.installed = block[-1], self.installed + 1
        return Position.model_validate_json(bytes(block[:HEAD]))


def packed(fill: int, position: Position = AT) -> memoryview:
    return Bytes(fill).pack(position)
