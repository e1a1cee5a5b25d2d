"""A stand-in for a training program: reads the FIFOs of channels epoch after epoch, and says which records it got.

It looks a channel up, waits for a FIFO's file and splits records as PipeModeDataset does, by code of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

DOCUMENT = Path(__file__).parents[2] / "training" / "CHANNELS.md"


class NoRecord(Exception):
    pass


def named(record: bytes) -> str:
    return record[:12].decode("latin1") + hashlib.sha256(record).hexdigest()[:8]


def gone_on(name: str, ranks: int, state: dict[str, Any], root: Path) -> dict[str, Any]:
    """By the code that the document of channels gives to ranks that go on with an epoch."""
    (code,) = re.findall(r"```python\n(import json.*?)\nstate = ", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("/opt/ml/input/data", str(root)), names)  # noqa: S102
    resumed: dict[str, Any] = names["go_on"](name, ranks, state)
    return resumed


def pipe_mode_dataset(channel: str, epoch: int, record_format: str, root: Path) -> Iterator[bytes]:
    channels = json.loads((root.parent / "config" / "inputdataconfig.json").read_text())
    if channels[channel]["TrainingInputMode"] != "Pipe":
        raise NoRecord(f"{channel} is no channel of pipe mode")
    path = root / f"{channel}_{epoch}"
    while not path.exists():
        time.sleep(0.02)
    with path.open("rb") as file:
        yield from {"TFRecord": tf_records, "TextLine": lines, "RecordIO": record_io}[record_format](file)


def tf_records(file: BinaryIO) -> Iterator[bytes]:
    while header := file.read(12):
        length = struct.unpack("<Q", header[:8])[0]
        if len(header) < 12 or length > 1 << 30:
            raise NoRecord(header.decode(errors="replace") + file.read().decode(errors="replace"))
        yield file.read(length)
        file.read(4)


def lines(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.rstrip(b"\n")


def record_io(file: BinaryIO) -> Iterator[bytes]:
    while header := file.read(8):
        magic, word = struct.unpack("<II", header)
        if magic != 0xCED7230A:
            raise NoRecord(header.decode(errors="replace"))
        length = word & (1 << 29) - 1
        yield file.read((length + 3) // 4 * 4)[:length]


def main() -> None:
    """channel, format, epochs, and where to write; then how many records of each epoch are read, 0 for all."""
    channel, record_format, epochs, out, most = sys.argv[1:6]
    root = Path(next(value for name, value in os.environ.items() if name.startswith("SM_CHANNEL_"))).parent
    with open(out, "a") as log:
        for epoch in range(int(epochs)):
            seen = []
            for number, record in enumerate(pipe_mode_dataset(channel, epoch, record_format, root), 1):
                seen.append(named(record))
                if number == int(most):
                    break
            print(json.dumps([channel, epoch, seen]), file=log, flush=True)


if __name__ == "__main__":
    main()
