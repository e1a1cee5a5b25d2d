"""Checksums of arrays that must be equal on all workers, with readable names, few enough for one message. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

MOST = 1000  # with two names each, a message of them stays below MAX_BYTES
NAME = 80  # characters

Checks = tuple[tuple[str, str], ...]


def few(checks: Sequence[tuple[str, str]]) -> Checks:
    """At most `MOST` checksums: in a larger model, neighbouring arrays share one, named after the first and the last.

    The grouping is the same on all workers, which have the same number of arrays.
    """
    each = -(-len(checks) // MOST) or 1
    return tuple(_one(checks[at : at + each]) for at in range(0, len(checks), each))


def _one(group: Sequence[tuple[str, str]]) -> tuple[str, str]:
    (first, checksum), (last, _) = group[0], group[-1]
    if len(group) == 1:
        return _short(first), checksum
    return f"{_short(first)} to {_short(last)}", f"{zlib.crc32(repr([sum_ for _, sum_ in group]).encode()):08x}"


def _short(name: str) -> str:
    """Shorten a name at its start: names of parameters differ at their ends."""
    plain = name.encode("ascii", "backslashreplace").decode()
    return plain if len(plain) <= NAME else f"...{plain[3 - NAME :]}"
