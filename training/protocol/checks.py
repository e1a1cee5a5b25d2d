"""Limits the number of checksums of arrays that must be equal on all workers, to fit into one message. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

MOST_CHECKS = 1000  # maximum in one message, which so stays below MAX_BYTES
NAME_LENGTH = 80  # maximum for an array's name, in characters

Checks = tuple[tuple[str, str], ...]  # (name, checksum) of each array


def limit_checks(checks: Sequence[tuple[str, str]]) -> Checks:
    """Return at most `MOST_CHECKS` checksums.

    Neighbouring arrays may share a checksum, which is named after the first and last array. All workers group the
    arrays alike, as all have the same number of arrays.
    """
    group_size = -(-len(checks) // MOST_CHECKS) or 1
    return tuple(_combine_checksums(checks[start : start + group_size]) for start in range(0, len(checks), group_size))


def _combine_checksums(group: Sequence[tuple[str, str]]) -> tuple[str, str]:
    (first_name, checksum), (last_name, _) = group[0], group[-1]
    if len(group) == 1:
        return _shorten(first_name), checksum
    return (
        f"{_shorten(first_name)} to {_shorten(last_name)}",
        f"{zlib.crc32(repr([checksum for _, checksum in group]).encode()):08x}",
    )


def _shorten(name: str) -> str:
    """Shorten an array's name at its start, as parameters' names differ at their ends."""
    ascii_name = name.encode("ascii", "backslashreplace").decode()
    return ascii_name if len(ascii_name) <= NAME_LENGTH else f"...{ascii_name[3 - NAME_LENGTH :]}"
