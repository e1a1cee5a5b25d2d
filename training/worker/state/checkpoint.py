"""Commits: files with the training state, on storage that outlives the workers.

A commit is one file, `<generation>-<step>.commit`: the packed state, then its checksum (`block.checksum`). The file is
written under another name, synced and renamed, so it exists whole or not at all. The coordinator journals the names,
and decides which commit a generation starts from and which commits are kept. So this module only reports a damaged
commit: loading another state instead would be a silent error.
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

SUFFIX = ".commit"  # of a commit's file


class CheckpointError(RuntimeError):
    """A commit could not be written or read. The message names the commit and the reason."""


class CommitDamaged(CheckpointError):
    """The commit is missing or its checksum is wrong: a retry will not help, but the previous commit may be whole."""


def commit_name(generation: int, step: int) -> str:
    """Return the commit's file name. File names sort by generation first, then by step.

    Generations only grow, but steps may go back: a commit of a generation that started from an earlier commit must sort
    after the commits that it replaces.
    """
    return f"{generation:06d}-{step:012d}{SUFFIX}"


def superseded(names: Collection[str], written: Sequence[str], keep: Collection[str] | None) -> list[str]:
    """Return the commits of `names` that may be deleted.

    `written` are this process's own commits, oldest first. The last of them was just written. The coordinator may not
    have known the last few of them when it chose which commits to `keep`, so these stay. Commits newer than this
    process's last commit belong to a process that replaced this process, so they stay too.
    """
    if keep is None:
        return sorted(names)[:-COMMITS_KEPT]
    kept_names = {*keep, *written[-COMMITS_KEPT:]}
    return sorted(name for name in names if name < written[-1] and name not in kept_names)


class CommitStore:
    """The commits in the folder `directory`. Raises CheckpointError if the folder cannot be created."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: tuple[str, ...] = ()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint directory {directory} cannot be used: {error.strerror}; free space or give another "
                "with --checkpoint-dir"
            ) from error

    def write(
        self,
        step: int,
        generation: int,
        block: bytes | bytearray | memoryview,
        keep: Collection[str] | None = None,
    ) -> str:
        """Write a commit. Returns its name once the commit is on disk. For `keep` see `superseded`.

        Raises CheckpointError if the commit cannot be written. The earlier commits are then unchanged.
        """
        file_name = commit_name(generation, step)
        partial_path = self._directory / f".{file_name}.{os.getpid()}"
        try:
            write_synced(partial_path, block, checksum(block))
            partial_path.rename(self._directory / file_name)
            sync(self._directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial_path.unlink()
            raise CheckpointError(
                f"commit {file_name} in {self._directory} cannot be written: {error.strerror}; the previous commit "
                "is intact"
            ) from error
        # Partial files of the previous generation stay: a worker that continued may still be writing one.
        partial_files = [
            path.name for path in self._directory.glob(f".*{SUFFIX}.*") if path.name < f".{generation - 1:06d}"
        ]
        self._written = (*self._written, file_name)[-COMMITS_KEPT:]
        for obsolete_file in [*superseded(self._names(), self._written, keep), *partial_files]:
            with contextlib.suppress(OSError):  # the next commit retries
                (self._directory / obsolete_file).unlink()
        return file_name

    def read(self, name: str) -> memoryview:
        """Return the packed state of a commit.

        Raises CommitDamaged, or CheckpointError if the file is unreadable now.
        """
        try:
            file_bytes = (self._directory / name).read_bytes()
        except FileNotFoundError as error:
            raise CommitDamaged(f"commit {name} is missing in {self._directory}") from error
        except OSError as error:
            raise CheckpointError(
                f"commit {name} in {self._directory} cannot be read: {error.strerror}. Repair the directory, whose "
                "files are unchanged"
            ) from error
        block = memoryview(file_bytes)[:-CHECKSUM_BYTES]
        if checksum(block) != file_bytes[-CHECKSUM_BYTES:]:
            raise CommitDamaged(f"commit {name} in {self._directory} is damaged: its checksum is wrong")
        return block

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(f"*{SUFFIX}"))
