"""Commits: files with the training state, on storage that outlives the workers.

A commit is one file, `<generation>-<step>.commit`: the packed state, then its checksum (`block.checksum`). The file
is written under another name, synced and renamed, so it exists whole or not at all. The coordinator journals the names,
and decides which commit a generation starts from and which commits are kept. So a damaged commit is only reported here:
to load another state instead would be a silent error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from dyntrain.training.host.durable import sync
from dyntrain.training.protocol.messages import COMMITS_KEPT
from dyntrain.training.worker.state.block import CHECKSUM_BYTES, checksum
from dyntrain.training.worker.state.direct import write_synced

SUFFIX = ".commit"


class CheckpointError(RuntimeError):
    """A commit could not be written or read; the message names the commit and the reason."""


class CommitDamaged(CheckpointError):
    """The commit is missing or its checksum is wrong: a retry will not help, but the previous commit may be whole."""


def commit_name(generation: int, step: int) -> str:
    """Return the commit's file name. Names sort by generation first, then by step.

    Generations only grow, but steps may go back: a commit of a generation that started from an earlier commit must sort
    after the commits that it replaces.
    """
    return f"{generation:06d}-{step:012d}{SUFFIX}"


def superseded(names: Collection[str], written: Sequence[str], keep: Collection[str] | None) -> list[str]:
    """Return the commits of `names` that may be deleted.

    `written` are this process's own commits, oldest first; the last one was just written. The coordinator may not have
    known the last few when it chose which commits to `keep`, so these stay. Commits newer than the last written one
    belong to a process that replaced this process, so they stay too.
    """
    if keep is None:
        return sorted(names)[:-COMMITS_KEPT]
    stay = {*keep, *written[-COMMITS_KEPT:]}
    return sorted(name for name in names if name < written[-1] and name not in stay)


class CommitStore:
    """Commits in `directory`, which is created if missing. Raises CheckpointError if that is impossible."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: tuple[str, ...] = ()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint directory {directory}: {error.strerror}; free space or give another with --checkpoint-dir"
            ) from error

    def write(
        self,
        step: int,
        generation: int,
        block: bytes | bytearray | memoryview,
        keep: Collection[str] | None = None,
    ) -> str:
        """Write a commit; return its name once the commit is on disk. For `keep` see `superseded`.

        Raises CheckpointError on failure; the earlier commits are then unchanged.
        """
        name = commit_name(generation, step)
        partial = self._directory / f".{name}.{os.getpid()}"
        try:
            write_synced(partial, block, checksum(block))
            partial.rename(self._directory / name)
            sync(self._directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise CheckpointError(
                f"commit {name} in {self._directory}: {error.strerror}; the previous commit is intact"
            ) from error
        # Partial files of the previous generation stay: a worker that continued may still be writing one.
        partial_files = [
            path.name for path in self._directory.glob(f".*{SUFFIX}.*") if path.name < f".{generation - 1:06d}"
        ]
        self._written = (*self._written, name)[-COMMITS_KEPT:]
        for obsolete in [*superseded(self._names(), self._written, keep), *partial_files]:
            with contextlib.suppress(OSError):  # the next commit retries
                (self._directory / obsolete).unlink()
        return name

    def read(self, name: str) -> memoryview:
        """Return the packed state. Raises CommitDamaged, or CheckpointError if the file cannot be read at present."""
        try:
            raw = (self._directory / name).read_bytes()
        except FileNotFoundError as error:
            raise CommitDamaged(f"commit {name} is not in {self._directory}") from error
        except OSError as error:
            raise CheckpointError(
                f"commit {name} in {self._directory}: {error.strerror}; repair the directory; its files are unchanged"
            ) from error
        block = memoryview(raw)[:-CHECKSUM_BYTES]
        if checksum(block) != raw[-CHECKSUM_BYTES:]:
            raise CommitDamaged(f"commit {name} in {self._directory} is damaged: its checksum is wrong")
        return block

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(f"*{SUFFIX}"))
