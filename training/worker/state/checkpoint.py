"""Writes and reads commits: files with the training state, on storage that outlives the workers.

A commit is one file, `<generation>-<step>.commit`: the packed state, then its checksum (`block.checksum`). A commit is
written under a temporary name, synced and renamed, so it exists whole or not at all. The coordinator writes the names
of commits to its journal, and decides from which commit a generation starts and which commits are kept. This module
only reports a damaged commit, as loading another commit instead would be an unnoticed error.
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
    """A commit is missing or its checksum is wrong.

    Another attempt to read the commit will not help, but the previous commit may be intact.
    """


def commit_name(generation: int, step: int) -> str:
    """Return the commit's file name. Sorted file names are in the order of generations, then of steps.

    The number of the generation only grows, but a new generation may start at an earlier step. The new generation's
    commits must be sorted after the commits that the new generation replaces.
    """
    return f"{generation:06d}-{step:012d}{SUFFIX}"


def superseded_commits(names: Collection[str], written: Sequence[str], keep: Collection[str] | None) -> list[str]:
    """Return the names of the commits in `names` that may be deleted.

    `written` are the commits that this process wrote, oldest first, and the last of `written` was just written. The
    last `COMMITS_KEPT` of `written` are not deleted, as the coordinator may have chosen the commits to `keep` before it
    knew of these commits. Commits newer than this process's last commit are not deleted, as they belong to a process
    that replaced this process.
    """
    if keep is None:
        return sorted(names)[:-COMMITS_KEPT]
    kept_names = {*keep, *written[-COMMITS_KEPT:]}
    return sorted(name for name in names if name < written[-1] and name not in kept_names)


class CommitStore:
    """The commits in the folder `directory`. Raises CheckpointError if the folder is missing and cannot be created."""

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
        """Write a commit.

        Returns the commit's name once the commit is on disk. For the argument `keep`, see `superseded_commits`.

        Raises CheckpointError if the commit cannot be written. After an error, the earlier commits are unchanged.
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
        for obsolete_file in [*superseded_commits(self._commit_names(), self._written, keep), *partial_files]:
            with contextlib.suppress(OSError):  # the next commit retries
                (self._directory / obsolete_file).unlink()
        return file_name

    def read(self, name: str) -> memoryview:
        """Return the packed state of a commit.

        Raises CommitDamaged if the commit is missing or damaged, and CheckpointError if its file cannot be read at
        present.
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

    def _commit_names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(f"*{SUFFIX}"))
