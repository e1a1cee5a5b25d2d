"""Processes that load batches like those of `gluon.data.DataLoader`."""

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
from dyntrain.training.worker.data.padding import Padding
from dyntrain.training.worker.data.seeded import CHECKS_AHEAD, Key, SampleError, WatchedDataset, key_of_batch
from mxnet.gluon.data import dataloader

START_SECONDS = 120
FOLDER = "dynload-"  # followed by the pid of the process that owns the folder
KEPT_BYTES = 256 * 1024 * 1024  # freed memory that each process keeps: for a batch of 256 images and their sources
LONGEST = 70  # characters of a folder's path: a socket's path has at most 107, of which 31 are below the folder
Batchify = Callable[[list[Any]], Any]
Packed = Future[bytes | None]  # None: the batch was dropped meanwhile


class LoaderProcesses:
    """`count` loading processes, forked by the constructor.

    Construct it before the job is joined or between two loops, while this process is in no group: ps-lite's threads do
    not survive a fork. The constructing thread must live as long as the processes.

    An executor is used instead of Gluon's pool: the executor reports when a process has ended, while the pool would
    wait for the batch for ever. An executor also starts no process in the middle of the job. With `whole_batch`, the
    random draws of `batchify` follow from the batch; None means that the script does not say.
    """

    def __init__(self, dataset: Any, batchify: Batchify | None, count: int, whole_batch: bool | None = False) -> None:
        context = multiprocessing.get_context("fork")
        self._owner = os.getpid()
        self._ticket = context.RawValue("Q", 0)
        sweep(Path(tempfile.gettempdir()))
        # multiprocessing passes the descriptors of batches through a socket file of each process. A killed process
        # leaves its file behind, so all are in one folder, which is removed with the processes or at the next start.
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-")
        work = _Work(
            os.getpid(),
            WatchedDataset(dataset, 1 if whole_batch else CHECKS_AHEAD),
            batchify or dataloader.default_mp_batchify_fn,
            self._ticket,
            (mx.util.is_np_shape(), mx.util.is_np_array()),
            self._folder,
            bool(whole_batch),
            Padding(batchify, whole_batch),
        )
        mx.nd.waitall()  # MXNet's engine must be idle during the fork
        self._executor = ProcessPoolExecutor(count, context, work.begin)
        self._executor.submit(os.getpid).result(START_SECONDS)

    @property
    def pids(self) -> list[int]:
        return list(self._executor._processes)

    def submit(self, keys: Sequence[Key]) -> Packed:
        return self._executor.submit(_fetch, self._ticket.value, list(keys))

    def drop(self, futures: Sequence[Packed]) -> list[Packed]:
        """Cancel loads that are no longer needed; a load in progress stops at its next sample.

        Returns the futures that were in progress or done, for `release`.
        """
        self._ticket.value += 1
        return [future for future in futures if not future.cancel()]

    def close(self) -> None:
        """Kill the processes at once, even one that hangs in its dataset. In a fork of the owner, does nothing."""
        if os.getpid() != self._owner:
            return
        processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the folders that were left by loading processes of this user whose worker was killed.

    The batches themselves are in unnamed shared memory, which is freed with the processes.
    """
    for folder in parent.glob(f"{FOLDER}*-*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        try:
            if pid.isdecimal() and folder.stat().st_uid == os.getuid() and not Path("/proc", pid).exists():
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another worker has removed the folder meanwhile
            continue


def unpack(packed: bytes) -> Any:
    """Unpickle a batch from a loading process. The bytes come only from this process's own pipe."""
    return pickle.loads(packed)  # noqa: S301


def release(dropped: Sequence[Packed]) -> list[Packed]:
    """Free the shared memory of dropped batches, by unpacking them; return the batches that are not loaded yet."""
    for future in dropped:
        if future.done() and future.exception() is None and (packed := future.result()) is not None:
            unpack(packed)
    return [future for future in dropped if not future.done()]


# ---- in a loading process


class _Dropped(Exception):
    pass


@dataclass
class _Work:
    """The data that a loading process inherits by the fork, and that therefore needs no pickling."""

    parent: int
    dataset: WatchedDataset
    batchify: Batchify
    ticket: Any
    numpy_modes: tuple[bool, bool]
    folder: str
    whole_batch: bool
    padding: Padding
    batch_ticket: int = 0  # of the current batch
    keys: Sequence[Key] = ()  # of the current batch

    def begin(self) -> None:
        global _work
        die_with_parent(self.parent)
        keep_freed_memory(KEPT_BYTES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _work = self
        if len(self.folder) <= LONGEST:
            tempfile.tempdir = self.folder
        dataloader._worker_initializer(self, *self.numpy_modes)
        self.dataset.begin(ImageDraws(self.numpy_modes))

    def __getitem__(self, key: Key) -> Any:
        if self.ticket.value != self.batch_ticket:
            raise _Dropped
        return self.dataset[key]

    def batch_of(self, samples: list[Any]) -> Any:
        samples = self.dataset.checked(self.keys, samples)
        if self.whole_batch:
            self.dataset.seed(key_of_batch(self.keys))
        try:
            batch = self.batchify(samples)
        except Exception as error:
            raise SampleError(f"batchify_fn: {type(error).__name__}: {error}") from error
        self.padding.check(samples, batch, self.batchify)
        return batch


_work: _Work | None = None


def _fetch(ticket: int, keys: list[Key]) -> bytes | None:
    assert _work is not None
    _work.batch_ticket, _work.keys = ticket, keys
    try:
        return bytes(dataloader._worker_fn(keys, _work.batch_of))
    except _Dropped:
        return None
    except SampleError as error:
        error.add_note(f"in a batch of the samples {[index for _, _, index in keys]}")
        raise
