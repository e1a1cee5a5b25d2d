"""Splits large gradients into several keys, and assigns the keys to the servers by size. Pure.

ps-lite would split a large key over all servers. If a worker died between the pushes of the pieces, the servers' counts
would differ for ever, and no survivor could be released. So the splitting of keys by MXNet is off, and every part is a
separate key on a single server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dyntrain.training.engine.dealing import assign_key_numbers

WIDTHS = {"float16": 2, "float32": 4, "float64": 8}  # bytes of an element
PART_ELEMENTS = 1_000_000  # large enough that splitting costs nothing, small enough to spread over servers


@dataclass(frozen=True)
class Part:
    """Elements `start` to `start + length` of the flattened gradient `key`."""

    key: str  # name of the gradient
    start: int  # first element, in the flattened gradient
    length: int  # number of elements
    dtype: str
    whole: tuple[int, ...] | None  # the gradient's shape if the gradient is not split
    number: int = 0  # the part's key in ps-lite

    @property
    def size(self) -> int:
        """The part's size in bytes."""
        return self.length * WIDTHS.get(self.dtype, 4)


def split(keys: Sequence[tuple[str, tuple[int, ...], str]], servers: int = 1, limit: int = PART_ELEMENTS) -> list[Part]:
    """Return the parts of gradients given as (key, shape, dtype), in order, with key numbers for `servers` servers."""
    parts = []
    for key, gradient_shape, dtype in keys:
        element_count = 1
        for dimension in gradient_shape:
            element_count *= dimension
        if element_count <= limit:
            parts.append(Part(key, 0, element_count, dtype, tuple(gradient_shape)))
        else:
            parts += [
                Part(key, first_element, min(limit, element_count - first_element), dtype, None)
                for first_element in range(0, element_count, limit)
            ]
    key_numbers = assign_key_numbers([part.size for part in parts], servers)
    return [replace(part, number=key_number) for part, key_number in zip(parts, key_numbers, strict=True)]
