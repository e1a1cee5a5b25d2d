"""Commits: training state that is safe outside the workers.

A commit is one file, `<generation>-<step>.commit`: the packed state, then its checksum (`block.checksum`). It is
written under another name, synced and renamed, so it is there whole or not at all. The coordinator journals their
names, decides which one a generation starts from and says which ones stay, so a damaged one is only reported here:
another state at its position would be a silent error.
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
    """A commit could not be written or read; says which and why."""


class CommitDamaged(CheckpointError):
    """The commit is not there any more or its checksum is wrong: reading it again will not help, the one before it may
    be whole.
    """


def commit_name(generation: int, step: int) -> str:
    """Names sort by generation: generations only grow, steps do not, and a generation that starts from an earlier
    commit must not look older than what it replaces.
    """
    return f"{generation:06d}-{step:012d}{SUFFIX}"


def superseded(names: Collection[str], written: Sequence[str], keep: Collection[str] | None) -> list[str]:
    """Which of the commits `names` may go. `written`: this process's own, oldest first, the newest of which was just
    written; of the last few the coordinator may not have heard yet when it said what to `keep`. What is newer than they
    is another process's, which went on when this one was given up.
    """
    if keep is None:
        return sorted(names)[:-COMMITS_KEPT]
    stay = {*keep, *written[-COMMITS_KEPT:]}
    return sorted(name for name in names if name < written[-1] and name not in stay)


class CommitStore:
    """`directory` is made when it is missing. Raises CheckpointError when that cannot be."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: tuple[str, ...] = ()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint directory {directory}: {error.strerror}; free space or name another with --checkpoint-dir"
            ) from error

    def write(
        self,
        step: int,
        generation: int,
        block: bytes | bytearray | memoryview,
        keep: Collection[str] | None = None,
    ) -> str:
        """Returns the commit's name once it is on disk. A failure leaves the earlier commits as they were; `keep`: see
        `superseded`.
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
        # Of the generation before, a worker that went on may still be writing one.
        torn = [path.name for path in self._directory.glob(f".*{SUFFIX}.*") if path.name < f".{generation - 1:06d}"]
        self._written = (*self._written, name)[-COMMITS_KEPT:]
        for old in [*superseded(self._names(), self._written, keep), *torn]:
            with contextlib.suppress(OSError):  # the next commit tries again
                (self._directory / old).unlink()
        return name

    def read(self, name: str) -> memoryview:
        """The packed state. Raises CommitDamaged, or CheckpointError when the directory cannot be read at present."""
        try:
            raw = (self._directory / name).read_bytes()
        except FileNotFoundError as error:
            raise CommitDamaged(f"commit {name} is not in {self._directory}") from error
        except OSError as error:
            raise CheckpointError(
                f"commit {name} in {self._directory}: {error.strerror}; mend the directory, nothing in it was changed"
            ) from error
        block = memoryview(raw)[:-CHECKSUM_BYTES]
        if checksum(block) != raw[-CHECKSUM_BYTES:]:
            raise CommitDamaged(f"commit {name} in {self._directory} is damaged: its checksum is wrong")
        return block

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(f"*{SUFFIX}"))
