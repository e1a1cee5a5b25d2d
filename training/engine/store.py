"""Splits large gradients into several keys, so that each ps-lite server gets nearly the same number of bytes. Pure.

MXNet itself would split a large key over all servers. If a worker died between the pushes of the pieces, the servers
would have counted different numbers of pushes, and no survivor could be released. So MXNet's own splitting is off, and
each part of a large gradient is a separate key on a single server.
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
    dtype: str  # type of the elements
    whole: tuple[int, ...] | None  # the gradient's shape if the gradient is not split
    number: int = 0  # the part's key in ps-lite

    @property
    def size(self) -> int:
        """The part's size in bytes."""
        return self.length * WIDTHS.get(self.dtype, 4)


def split(keys: Sequence[tuple[str, tuple[int, ...], str]], servers: int = 1, limit: int = PART_ELEMENTS) -> list[Part]:
    """Return the parts of the gradients `keys`, given as (name, shape, dtype).

    The parts are in the order of the gradients, and their key numbers distribute the parts over `servers` servers.
    """
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
