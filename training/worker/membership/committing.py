"""Writes commits (files with the state) while the worker trains, one at a time, on a background thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.messages import CommitFailed, Committed, Position
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitStore

COMMIT_NICENESS = 10  # niceness of the thread that writes a commit
log = logging.getLogger(__name__)


class CommitWriter:
    """Writes commits. The function `say` sends the outcome of each commit to the coordinator."""

    def __init__(self, folder: JobFolder, say: Callable[[Committed | CommitFailed], object]) -> None:
        self._folder, self._say = folder, say
        self._store: CommitStore | None = None  # created at the first generation's order, which has the directory
        self._thread: threading.Thread | None = None

    def store(self, checkpoint_dir: str | None) -> CommitStore:
        if self._store is None:
            self._store = CommitStore(Path(checkpoint_dir) if checkpoint_dir else self._folder.commits)
        return self._store

    @property
    def is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin_commit(
        self, generation: int, position: Position, block: memoryview, keep: Collection[str] | None = None
    ) -> None:
        """Start to write a commit.

        `keep` contains the names of commits that must not be deleted (see `superseded_commits` in
        `dyntrain.training.worker.state.checkpoint`).

        Call `begin_commit` only when `is_writing` is false, so on slow storage, some epochs or segments end without a
        commit.
        """
        self._thread = threading.Thread(
            target=self._write, args=(generation, position, block, keep), name="commit", daemon=True
        )
        self._thread.start()

    def _write(self, generation: int, position: Position, block: memoryview, keep: Collection[str] | None) -> None:
        assert self._store is not None
        os.setpriority(
            os.PRIO_PROCESS, threading.get_native_id(), COMMIT_NICENESS
        )  # only of this thread, so that training comes first
        try:
            commit_name = self._store.write(position.step, generation, block, keep)
        except CheckpointError as error:
            log.error("%s", error)  # training continues; the previous commit remains
            self._say(CommitFailed(generation=generation, position=position, reason=str(error)))
            return
        self._say(Committed(generation=generation, position=position, name=commit_name))
