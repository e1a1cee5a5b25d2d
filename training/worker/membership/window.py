"""How far the zeros that free blocked workers are ahead of the answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WINDOW_BYTES = 32 << 20  # of all zeros together


@dataclass(frozen=True)
class _Key:
    number: int
    parts: Sequence[Any]

    @property
    def nbytes(self) -> int:
        return sum(int(part.length) * np.dtype(part.dtype).itemsize for part in self.parts)


class Window:
    """Which keys have had zeros pushed: those that are waited for next, up to `limit` bytes of them, and the first one
    whole. `keys`: (number, parts), ascending.
    """

    def __init__(self, keys: Sequence[tuple[int, Sequence[Any]]], limit: int = WINDOW_BYTES) -> None:
        self._keys = [_Key(number, parts) for number, parts in keys]
        self._limit, self._pushed = limit, 0

    @property
    def share(self) -> float:
        """Of all bytes, in the window at most."""
        return min(1.0, self._limit / max(1, sum(key.nbytes for key in self._keys)))

    def next(self, at: int) -> list[Any]:
        """The parts that zeros are to be pushed for now, when `at` is the lowest key that is not answered."""
        waited = [key for key in self._keys if key.number >= at]
        ahead, found = 0, list[Any]()
        for key in waited:
            if ahead >= self._limit:
                break
            if key.number >= self._pushed:
                found += key.parts
                self._pushed = key.number + 1
            ahead += key.nbytes
        return found

    def open(self, at: int) -> list[Any]:
        """The parts that zeros were pushed for, and no answer has come."""
        return [part for key in self._keys if at <= key.number < self._pushed for part in key.parts]
