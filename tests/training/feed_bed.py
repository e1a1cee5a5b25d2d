"""Records as others write them and feeds as they are run, for the tests of feeds."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.local.pace import patient
from dyntrain.training.feed.crc import crc32c_by_table, library_crc, masked_crc
from dyntrain.training.feed.frames import FIRST, LAST, MAGIC, MIDDLE, WHOLE
from feed_reader import named

CRC = library_crc() or crc32c_by_table
READER = Path(__file__).parent / "feed_reader.py"


def tf_record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(CRC(length))) + data + struct.pack("<I", masked_crc(CRC(data)))


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


def put(
    s3: Any, parts: dict[str, list[bytes]], frame: Callable[[bytes], bytes] = tf_record, below: str = "train/"
) -> dict[str, list[str]]:
    for name, records in parts.items():
        s3.put_object(Bucket="data", Key=below + name, Body=b"".join(map(frame, records)))
    return {name: [named(record) for record in records] for name, records in parts.items()}


def noise(name: str, count: int, most: int = 3000) -> list[bytes]:
    draw = random.Random(name)
    return [f"{name}/{number:<4d}".encode() + draw.randbytes(draw.randint(0, most)) for number in range(count)]


@dataclass
class Feed:
    """A feed with the shell's command line `command`, where `$READ` reads: channel, format, epochs, file, records."""

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "ml" / "input" / "data"

    def start(self, command: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "dyntrain.training.feed", "--root", str(self.root), *options]
        env = {**os.environ, "READ": f"{sys.executable} {READER}", "OUT": str(self.folder), **environment}
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen([*words, "--", "bash", "-c", command], env=env, stderr=output, stdout=output)
        self.running.append(process)
        return process

    def run(self, command: str, *options: str, **environment: str) -> int:
        return self.start(command, *options, **environment).wait(patient(60))

    def end(self) -> None:
        """Each sentence is short."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        for line in self.sentences() if self.running else ():
            assert len(line.split()) <= 30, line

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def sentences(self) -> list[str]:
        return [line.removeprefix("feed: ") for line in self.output().splitlines() if line.startswith("feed: ")]

    def seen(self, name: str = "seen") -> list[tuple[str, int, list[str]]]:
        file = self.folder / name
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(line)) for line in lines]
