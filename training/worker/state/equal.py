"""Computes checksums of the parts of a packed state that must be equal on all workers, one for each array."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
from dyntrain.training.worker.state.block import checksum, header_of

PLAIN_VALUES_LABEL = "the position, a rate, the number of updates, or what is summed"
SUMMED = "summed"  # entry of the job's own values; workers with different entries would wait for each other's sums


def checksums(block: bytes | bytearray | memoryview) -> list[str]:
    """Return one checksum for all plain values, then one for each array that must be equal on all workers of the job.

    The arrays that must be equal are parameters that train or that the script sets, optimizer states, carried gradients
    and kept arrays.
    """
    header, offset = header_of(block)
    scalars_to_compare = dict(header["scalars"])
    if header["position"]["offset"] == 0:
        # At an epoch's start, one worker's script may have set the epoch's rate already and another's not yet.
        for entry_name in ("values", "untouched"):
            scalars_to_compare.pop(entry_name, None)
    equal_values = [header["layout"], header["position"], scalars_to_compare, header["own"].get(SUMMED)]
    array_checksums = [checksum(json.dumps(equal_values, sort_keys=True).encode()).hex()[:16]]
    for entry_name, shape, dtype in header["arrays"]:
        if entry_name.startswith("a"):  # each worker's own arrays, which come last
            break
        array_size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        array_checksums.append(checksum(memoryview(block)[offset : offset + array_size]).hex()[:16])
        offset += array_size
    return array_checksums


def digest(checksums: Iterable[str]) -> str:
    """Return one checksum of all `checksums`, as sixteen hex digits."""
    return checksum("".join(checksums).encode()).hex()[:16]
