"""Records as others write them, for the tests of feeds."""

from __future__ import annotations

import struct

from dyntrain.training.feed.crc import by_table, fast, masked
from dyntrain.training.feed.frames import FIRST, LAST, MAGIC, MIDDLE, WHOLE

CRC = fast() or by_table


def tf_record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(CRC(length))) + data + struct.pack("<I", masked(CRC(data)))


def record_io(data: bytes) -> bytes:
    """Split at aligned magic numbers, as dmlc's writer does."""
    magic = struct.pack("<I", MAGIC)
    cuts = [at for at in range(0, len(data) - 3, 4) if data[at : at + 4] == magic]
    starts, ends = [0, *(at + 4 for at in cuts)], [*cuts, len(data)]
    parts = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    kinds = [WHOLE] if len(parts) == 1 else [FIRST, *([MIDDLE] * (len(parts) - 2)), LAST]
    return b"".join(
        magic + struct.pack("<I", kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4)
        for kind, part in zip(kinds, parts, strict=True)
    )
