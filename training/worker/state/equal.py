"""Checksums of what must be equal on all workers in a packed state: one of each array, so that a difference has its
name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
from dyntrain.training.worker.state.block import checksum, header_of

NO_ARRAY = "the position, a rate, the number of updates, or what is summed"
SUMMED = "summed"  # of what the job remembers, that which all must have alike, or they wait for each other's sums


def checksums(block: bytes | bytearray | memoryview) -> list[str]:
    """First of what is no array, then of each parameter that trains or is set, optimizer state, kept array."""
    header, at = header_of(block)
    scalars = dict(header["scalars"])
    if header["position"]["offset"] == 0:
        # Where an epoch begins, one worker's script may have set this epoch's rate already and another's not yet.
        for name in ("values", "untouched"):
            scalars.pop(name, None)
    alike = [header["layout"], header["position"], scalars, header["own"].get(SUMMED)]
    sums = [checksum(json.dumps(alike, sort_keys=True).encode()).hex()[:16]]
    for name, shape, dtype in header["arrays"]:
        if name.startswith("a"):  # each worker's own, which stand last
            break
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        sums.append(checksum(memoryview(block)[at : at + size]).hex()[:16])
        at += size
    return sums


def digest(checksums: Iterable[str]) -> str:
    """Sixteen hex digits over all of them."""
    return checksum("".join(checksums).encode()).hex()[:16]
