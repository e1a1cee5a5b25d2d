"""How the zeros that free blocked workers are divided: in time, so that they do not fill the memory, and among the
workers. The same on every worker, as nothing else has a part in it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WINDOW_BYTES = 32 << 20  # of zeros that one worker has at a time; a key that is larger goes whole


@dataclass(frozen=True)
class Key:
    """A gradient's number, and what it is pushed as."""

    number: int
    parts: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        return sum(int(part.length) * np.dtype(part.dtype).itemsize for part in self.parts)


def windows_of(keys: Sequence[Key], limit: int = WINDOW_BYTES) -> list[list[Key]]:
    """In their order, each of at most so many bytes."""
    windows: list[list[Key]] = []
    room = 0
    for key in keys:
        if not windows or key.nbytes > room:
            windows.append([])
            room = limit
        windows[-1].append(key)
        room -= key.nbytes
    return windows


def share_of(keys: Sequence[Key], number: int, shares: int) -> list[Key]:
    """Of worker `number` among so many; all have nearly the same to push."""
    loads, mine = [0] * shares, list[Key]()
    for key in sorted(keys, key=lambda key: (-key.nbytes, key.number)):
        least = loads.index(min(loads))
        loads[least] += key.nbytes
        if least == number:
            mine.append(key)
    return mine
