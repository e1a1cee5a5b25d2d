"""Divides the zeros that release blocked workers into windows, to limit memory, and among the surviving workers. Pure.

The functions' results depend only on their arguments, so all workers compute the same division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WINDOW_BYTES = 32 << 20  # bytes of zeros that a worker has at a time; a larger key is a window of its own


@dataclass(frozen=True)
class Key:
    """A gradient's key number, and the parts in which the gradient is pushed."""

    number: int  # the engine's number of the key
    parts: tuple[Any, ...]  # in which the gradient is pushed

    @property
    def nbytes(self) -> int:
        return sum(int(part.length) * np.dtype(part.dtype).itemsize for part in self.parts)


def windows_of(keys: Sequence[Key], limit: int = WINDOW_BYTES) -> list[list[Key]]:
    """Divide keys, in their order, into windows of at most `limit` bytes.

    A key of more than `limit` bytes is a window of its own.
    """
    windows: list[list[Key]] = []
    bytes_left = 0
    for key in keys:
        if not windows or key.nbytes > bytes_left:
            windows.append([])
            bytes_left = limit
        windows[-1].append(key)
        bytes_left -= key.nbytes
    return windows


def share_of(keys: Sequence[Key], number: int, shares: int) -> list[Key]:
    """Return the keys for which worker `number` of `shares` workers pushes zeros.

    The workers' shares have nearly equal numbers of bytes.
    """
    bytes_by_share, own_keys = [0] * shares, list[Key]()
    for key in sorted(keys, key=lambda key: (-key.nbytes, key.number)):
        smallest_share = bytes_by_share.index(min(bytes_by_share))
        bytes_by_share[smallest_share] += key.nbytes
        if smallest_share == number:
            own_keys.append(key)
    return own_keys
