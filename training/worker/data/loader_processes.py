"""Runs processes that load batches, like the worker processes of `gluon.data.DataLoader`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.host.allocator import keep_freed_memory
from dyntrain.training.host.parentage import die_with_parent
from dyntrain.training.worker.data.image_draws import ImageDraws
from dyntrain.training.worker.data.padding import PaddingCheck
from dyntrain.training.worker.data.seeded import CHECKS_AHEAD, Key, SampleError, WatchedDataset, key_of_batch
from mxnet.gluon.data import dataloader

START_SECONDS = 120  # for the loading processes to start
FOLDER_PREFIX = "dynload-"  # followed by the pid of the process that owns the folder
KEPT_BYTES = 256 * 1024 * 1024  # freed memory that each process keeps: for a batch of 256 images and their sources
MAX_FOLDER_CHARACTERS = 70  # of a folder's path: a socket's path has at most 107, of which 31 are below the folder
Batchify = Callable[[list[Any]], Any]
BatchFuture = Future[bytes | None]  # None: the batch was dropped meanwhile


class LoaderProcesses:
    """The processes that load a loader's batches. The constructor forks `count` processes.

    Create an instance while this process is in no ps-lite group (before the job is joined, or between two loops), as
    ps-lite's threads do not survive a fork. The thread that creates the instance must live as long as the processes.

    The class uses a ProcessPoolExecutor instead of Gluon's pool. If a process has ended, the executor reports an error,
    while Gluon's pool waits forever for that process's batch. The executor also never starts a process in the middle of
    the job. If `whole_batch` is true, the random numbers that `batchify` draws depend only on the batch. If
    `whole_batch` is None, the script did not give this argument.
    """

    def __init__(self, dataset: Any, batchify: Batchify | None, count: int, whole_batch: bool | None = False) -> None:
        fork_context = multiprocessing.get_context("fork")
        self._owner = os.getpid()
        self._ticket = fork_context.RawValue("Q", 0)
        remove_stale_folders(Path(tempfile.gettempdir()))
        # multiprocessing passes the descriptors of batches through a socket file of each process. A killed process
        # leaves its file behind, so all are in one folder, which is removed with the processes or at the next start.
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
        loader_state = _LoaderState(
            os.getpid(),
            WatchedDataset(dataset, 1 if whole_batch else CHECKS_AHEAD),
            batchify or dataloader.default_mp_batchify_fn,
            self._ticket,
            (mx.util.is_np_shape(), mx.util.is_np_array()),
            self._folder,
            bool(whole_batch),
            PaddingCheck(batchify, whole_batch),
        )
        mx.nd.waitall()  # MXNet's engine must be idle during the fork
        self._executor = ProcessPoolExecutor(count, fork_context, loader_state.initialize_process)
        self._executor.submit(os.getpid).result(START_SECONDS)

    @property
    def pids(self) -> list[int]:
        return list(self._executor._processes)

    def submit(self, keys: Sequence[Key]) -> BatchFuture:
        return self._executor.submit(_fetch_batch, self._ticket.value, list(keys))

    def drop(self, batch_futures: Sequence[BatchFuture]) -> list[BatchFuture]:
        """Cancel batches that are no longer needed.

        A process that is loading a dropped batch stops at the batch's next sample.

        Returns the futures that could not be cancelled, for `free_batches`.
        """
        self._ticket.value += 1
        return [batch_future for batch_future in batch_futures if not batch_future.cancel()]

    def close(self) -> None:
        """Kill the loading processes at once, even a process that hangs.

        In a forked child of this process, does nothing.
        """
        if os.getpid() != self._owner:
            return
        loading_processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for loading_process in loading_processes:
            loading_process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_stale_folders(parent: Path) -> None:
    """Remove the temporary folders of this user's loading processes whose worker process no longer exists.

    The batches are in unnamed shared memory, which is freed when the processes end.
    """
    for stale_folder in parent.glob(f"{FOLDER_PREFIX}*-*"):
        owner_pid = stale_folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        try:
            if (
                owner_pid.isdecimal()
                and stale_folder.stat().st_uid == os.getuid()
                and not Path("/proc", owner_pid).exists()
            ):
                shutil.rmtree(stale_folder, ignore_errors=True)
        except FileNotFoundError:  # another worker has removed the folder meanwhile
            continue


def unpickle_batch(packed: bytes) -> Any:
    """Unpickle a batch that a loading process made.

    Unpickling is safe, as only child processes of this process write to its pipe.
    """
    return pickle.loads(packed)  # noqa: S301


def free_batches(dropped_batches: Sequence[BatchFuture]) -> list[BatchFuture]:
    """Free the shared memory of dropped batches by unpickling the batches.

    Returns the batches that are not loaded yet.
    """
    for batch_future in dropped_batches:
        if (
            batch_future.done()
            and batch_future.exception() is None
            and (packed_batch := batch_future.result()) is not None
        ):
            unpickle_batch(packed_batch)
    return [batch_future for batch_future in dropped_batches if not batch_future.done()]


# ---- in a loading process


class _BatchDropped(Exception):
    pass


@dataclass
class _LoaderState:
    """The data that a loading process inherits by the fork, so that the data is not pickled."""

    parent: int  # pid of the process that forked
    dataset: WatchedDataset
    batchify: Batchify
    ticket: Any  # shared number; a batch with another number is dropped
    numpy_modes: tuple[bool, bool]  # whether shapes and arrays are as in NumPy
    folder: str  # for temporary files
    whole_batch: bool
    padding: PaddingCheck
    batch_ticket: int = 0  # of the current batch
    keys: Sequence[Key] = ()  # of the current batch

    def initialize_process(self) -> None:
        global _inherited_state
        die_with_parent(self.parent)
        keep_freed_memory(KEPT_BYTES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _inherited_state = self
        if len(self.folder) <= MAX_FOLDER_CHARACTERS:
            tempfile.tempdir = self.folder
        dataloader._worker_initializer(self, *self.numpy_modes)
        self.dataset.set_image_draws(ImageDraws(self.numpy_modes))

    def __getitem__(self, key: Key) -> Any:
        if self.ticket.value != self.batch_ticket:
            raise _BatchDropped
        return self.dataset[key]

    def batch_of(self, samples: list[Any]) -> Any:
        samples = self.dataset.reload_if_drawn(self.keys, samples)
        if self.whole_batch:
            self.dataset.seed(key_of_batch(self.keys))
        try:
            batch = self.batchify(samples)
        except Exception as error:
            raise SampleError(f"batchify_fn: {type(error).__name__}: {error}") from error
        self.padding.check(samples, batch, self.batchify)
        return batch


_inherited_state: _LoaderState | None = None


def _fetch_batch(ticket: int, keys: list[Key]) -> bytes | None:
    assert _inherited_state is not None
    _inherited_state.batch_ticket, _inherited_state.keys = ticket, keys
    try:
        return bytes(dataloader._worker_fn(keys, _inherited_state.batch_of))
    except _BatchDropped:
        return None
    except SampleError as error:
        error.add_note(f"in a batch of the samples {[index for _, _, index in keys]}")
        raise
