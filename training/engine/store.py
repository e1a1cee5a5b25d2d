"""The native store of one generation, with large gradients split into keys of our own.

ps-lite would split a large key over all servers. A worker that dies between the two halves of one leaves the servers' counts out of step for
ever, and nobody can be freed; so ps-lite's splitting is off, and every part is a key that lives whole on one server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PART_ELEMENTS = 1_000_000  # large enough that splitting costs nothing, small enough to spread over servers


@dataclass(frozen=True)
class Part:
    """Elements `start` to `start + length` of the flattened gradient `key`."""

    name: str
    key: str
    start: int
    length: int
    dtype: str
    whole: tuple[int, ...] | None  # the gradient's shape when it is not split


def split(keys: Sequence[tuple[str, tuple[int, ...], str]], limit: int = PART_ELEMENTS) -> list[Part]:
    """The parts of gradients given as (key, shape, dtype), in order."""
    parts = []
    for key, shape, dtype in keys:
        size = 1
        for length in shape:
            size *= length
        if size <= limit:
            parts.append(Part(key, key, 0, size, dtype, tuple(shape)))
        else:
            parts += [Part(f"{key}.{i}", key, at, min(limit, size - at), dtype, None) for i, at in enumerate(range(0, size, limit))]
    return parts


class PartedStore:
    """`pushpull` by gradient; `parts_between` and `pushpull_part` for whoever pushes in a dead worker's place."""

    def __init__(self, native: Any, parts: Sequence[Part]) -> None:
        self._native = native
        self._parts = parts
        self._by_key: dict[str, list[Part]] = {}
        for part in parts:
            self._by_key.setdefault(part.key, []).append(part)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        values = value if isinstance(value, list) else [value]
        outs = values if out is None else out if isinstance(out, list) else [out]
        for part in self._by_key[str(key)]:
            if part.whole is not None:
                self._native.pushpull(part.name, values, out=outs, priority=priority)
            else:
                self._native.pushpull(part.name, [_slice(v, part) for v in values], out=[_slice(o, part) for o in outs], priority=priority)

    def parts_between(self, first: int, last: int) -> list[Part]:
        """The parts of the keys from number `first` to the one before `last`, in their order."""
        keys = list(self._by_key)[first:last]
        return [part for key in keys for part in self._by_key[key]]

    def pushpull_part(self, part: Part, flat: Any) -> None:
        """`flat` has the part's length; its answer overwrites it."""
        array = flat if part.whole is None else flat.reshape(part.whole)
        self._native.pushpull(part.name, array, out=array)


def _slice(array: Any, part: Part) -> Any:
    return array.reshape((-1,))[part.start : part.start + part.length]  # a view: writes reach the gradient
