"""Commits: training state that is safe outside the workers.

A commit is one file, `<step>-<generation>.commit`: 32 bytes SHA-256, then the packed state. It is written under another name, synced and
renamed, so it is there whole or not at all; the last few are kept, and a damaged one is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".commit"


class CheckpointError(RuntimeError):
    """A commit could not be written or none could be read; says which and why."""


class CommitStore:
    """`directory` is made when it is missing. Raises CheckpointError when that cannot be."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self._directory, self._keep = directory, keep
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"checkpoint directory {directory}: {error.strerror}; free space or name another with --checkpoint-dir") from error

    def write(self, step: int, generation: int, block: bytes | bytearray) -> str:
        """Returns the commit's name once it is on disk. A failure leaves the earlier commits as they were."""
        name = f"{step:012d}-{generation:06d}{SUFFIX}"
        partial = self._directory / f".{name}.{os.getpid()}"
        try:
            with partial.open("wb") as file:
                file.write(hashlib.sha256(block).digest())
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(self._directory / name)
            self._sync_directory()
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise CheckpointError(f"commit {name} in {self._directory}: {error.strerror}; the previous commit is intact") from error
        for old in self._names()[: -self._keep]:
            (self._directory / old).unlink(missing_ok=True)
        return name

    def read(self, name: str) -> bytes:
        """The packed state of `name`, or of the newest readable one before it. Raises CheckpointError when there is none."""
        problems = []
        for candidate in self._at_or_before(name):
            try:
                raw = (self._directory / candidate).read_bytes()
            except OSError as error:
                problems.append(f"{candidate}: {error.strerror}")
                continue
            if hashlib.sha256(raw[32:]).digest() == raw[:32]:
                return raw[32:]
            problems.append(f"{candidate}: damaged")
        raise CheckpointError(f"no readable commit at or before {name} in {self._directory} ({'; '.join(problems) or 'none there'})")

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(f"*{SUFFIX}"))

    def _at_or_before(self, name: str) -> Iterator[str]:
        return (candidate for candidate in reversed(self._names()) if candidate <= name)

    def _sync_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
