"""Checksums of arrays that must be equal on all workers, with readable names, few enough for one message. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

MOST_CHECKS = 1000  # with two names each, a message with so many stays below MAX_BYTES
NAME_LENGTH = 80  # characters

Checks = tuple[tuple[str, str], ...]


def limit_checks(checks: Sequence[tuple[str, str]]) -> Checks:
    """Return at most `MOST_CHECKS` checksums: neighbouring arrays may share one, named after the first and the last.

    The grouping is the same on all workers, which have the same number of arrays.
    """
    size = -(-len(checks) // MOST_CHECKS) or 1
    return tuple(_combine(checks[start : start + size]) for start in range(0, len(checks), size))


def _combine(group: Sequence[tuple[str, str]]) -> tuple[str, str]:
    (first, checksum), (last, _) = group[0], group[-1]
    if len(group) == 1:
        return _short(first), checksum
    return f"{_short(first)} to {_short(last)}", f"{zlib.crc32(repr([part for _, part in group]).encode()):08x}"


def _short(name: str) -> str:
    """Shorten a name at its start, as names of parameters differ at their ends."""
    plain = name.encode("ascii", "backslashreplace").decode()
    return plain if len(plain) <= NAME_LENGTH else f"...{plain[3 - NAME_LENGTH :]}"
