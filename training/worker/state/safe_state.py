"""Keeps safe states: copies of the training state in the supervisor's memory, for the worker's next process.

A buffer contains one page with a seal, then the packed state. The seal is removed before the buffer is rewritten and
set again when the state is complete, so a worker may die at any moment. The seal also contains the state's checksum,
which is used as the state's name.
"""

from __future__ import annotations

import logging
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from dyntrain.training.protocol.messages import Position, SafeCopy
from dyntrain.training.worker.state.block import allocate, checksum
from dyntrain.training.worker.state.checkpoint import CommitDamaged
from pydantic import BaseModel, ConfigDict, Field, ValidationError

PAGE_BYTES = 4096  # of the seal, before the packed state
RESERVE_BYTES = 1 << 20  # bytes of reserve, as the header of a packed state grows a little during a job
MEMINFO = Path("/proc/meminfo")
log = logging.getLogger(__name__)


class Seal(BaseModel):
    """The mark of a buffer that contains a complete state of `size` bytes, with the state's job and position."""

    model_config = ConfigDict(frozen=True)

    job: str  # name of the job
    generation: int
    position: Position
    size: int = Field(ge=1)  # bytes of the packed state
    checksum: str  # of the packed state


class _Buffer:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._views: list[weakref.ref[memoryview]] = []
        self._memory: mmap.mmap | None = None
        if os.fstat(descriptor).st_size:
            self._map_memory()

    @property
    def in_use(self) -> bool:
        """Whether the buffer's state is still referenced, by a commit being written or a transfer to another worker."""
        return any(view() is not None for view in self._views)

    @property
    def seal(self) -> Seal | None:
        if self._memory is None:
            return None
        try:
            seal = Seal.model_validate_json(self._memory[:PAGE_BYTES].rstrip(b"\0"))
        except ValidationError:
            return None  # the seal is empty, or its writer died
        return seal if PAGE_BYTES + seal.size <= len(self._memory) else None

    @seal.setter
    def seal(self, seal: Seal | None) -> None:
        assert self._memory is not None
        self._memory[:PAGE_BYTES] = (seal.model_dump_json().encode() if seal else b"").ljust(PAGE_BYTES, b"\0")

    def reserve(self, size: int) -> None:
        """Allocate the buffer's memory for a state of `size` bytes.

        Raises OSError if the host has too little memory.
        """
        wanted_bytes = PAGE_BYTES + size
        if self._memory is not None and len(self._memory) >= wanted_bytes:
            return
        wanted_bytes += RESERVE_BYTES
        missing_bytes = wanted_bytes - os.fstat(self.descriptor).st_size
        if missing_bytes > available_memory() // 2:  # no limit applies here: the kernel would kill a process
            raise OSError(
                f"a safe state needs {missing_bytes >> 20} MB, but only {available_memory() >> 20} MB are free on "
                "this host"
            )
        os.posix_fallocate(self.descriptor, 0, wanted_bytes)
        self._map_memory()

    def take_memory(self, size: int) -> memoryview:
        assert self._memory is not None
        state_view = memoryview(self._memory)[PAGE_BYTES : PAGE_BYTES + size]
        self._views = [*(known_view for known_view in self._views if known_view() is not None), weakref.ref(state_view)]
        return state_view

    def owns(self, block: memoryview) -> bool:
        return any(view() is block for view in self._views)

    def _map_memory(self) -> None:
        # The pages are filled now, not during the copy, for which all workers wait.
        self._memory = mmap.mmap(self.descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


class SafeStates:
    """The safe states of one job in the supervisor's buffers `descriptors`.

    Without buffers, every state is in the worker's own memory, and is lost if the worker dies. The class is not
    thread-safe, so callers must use a lock.
    """

    def __init__(self, descriptors: Sequence[int], job: str) -> None:
        self._job = job
        self._buffers = [_Buffer(descriptor) for descriptor in descriptors]
        self._warned = False

    @property
    def has_memory(self) -> bool:
        """Whether states can be made safe: there are buffers, and no allocation of their memory has failed."""
        return bool(self._buffers) and not self._warned

    def reserve(self, size: int) -> None:
        """Allocate memory for states of about `size` bytes in advance, so that no membership change waits for memory.

        The third buffer is only for slow commits, so its memory is allocated when the buffer is first used.
        """
        for buffer in self._buffers[:2]:
            self._try_reserve(buffer, size)

    def newest(self) -> SafeCopy | None:
        """Return the latest complete state of this job, which this or an earlier process wrote.

        The checksum is verified by `read`.
        """
        newest_seal = max(
            (seal for buffer in self._buffers if (seal := self._seal_of_job(buffer))), key=_recency_key, default=None
        )
        return (
            SafeCopy(generation=newest_seal.generation, position=newest_seal.position, name=newest_seal.checksum)
            if newest_seal
            else None
        )

    def allocate(self, size: int) -> memoryview:
        """Return memory for a state: a buffer that is not in use, or else memory of this process.

        The buffer with the newest state is used only if no other buffer is free.
        """
        unused_buffers = [buffer for buffer in self._buffers if not buffer.in_use]
        newest_buffer = max(self._buffers, key=lambda buffer: _recency_key(self._seal_of_job(buffer)), default=None)
        for buffer in sorted(
            unused_buffers, key=lambda buffer: buffer is newest_buffer
        ):  # a stable sort: the third buffer gets memory only when needed
            if self._try_reserve(buffer, size):
                buffer.seal = None
                return buffer.take_memory(size)
        return allocate(size)

    def seal(self, block: memoryview, generation: int, position: Position, state_checksum: str | None = None) -> None:
        """Mark the state in `block` as complete. `state_checksum` is the checksum of the state, or None if unknown.

        If `block` is not in a buffer, nothing happens.
        """
        for buffer in self._buffers:
            if buffer.owns(block):
                state_checksum = state_checksum or checksum(block).hex()
                buffer.seal = Seal(
                    job=self._job, generation=generation, position=position, size=len(block), checksum=state_checksum
                )

    def read(self, name: str) -> memoryview:
        """Return the safe state whose checksum is `name`. Raises CommitDamaged if the state is missing or damaged."""
        for buffer in self._buffers:
            if (seal := buffer.seal) and (seal.job, seal.checksum) == (self._job, name):
                block = buffer.take_memory(seal.size)
                if checksum(block).hex() != name:
                    raise CommitDamaged(
                        f"the safe state of step {seal.position.step} on this host is damaged: its checksum is wrong"
                    )
                return block
        raise CommitDamaged(
            "the safe state on this host is gone: it was overwritten, or the host's supervisor started again"
        )

    def _seal_of_job(self, buffer: _Buffer) -> Seal | None:
        seal = buffer.seal
        return seal if seal and seal.job == self._job else None

    def _try_reserve(self, buffer: _Buffer, size: int) -> bool:
        try:
            buffer.reserve(size)
        except OSError as error:
            if not self._warned:
                log.warning("no shared memory for the state (%s): a restart continues from the last commit", error)
            self._warned = True
            return False
        return True


def _recency_key(seal: Seal | None) -> tuple[int, int]:
    """Return a sort key that is higher for newer states: first the generation, then the step."""
    return (seal.generation, seal.position.step) if seal else (-1, -1)


def available_memory() -> int:
    """Return the bytes of memory that this host can allocate without swapping."""
    memory_line = next(
        (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")), "MemAvailable: 0"
    )
    return int(memory_line.split()[1]) * 1024
