"""A worker's safe states: what it packed at the last boundaries, in memory of its supervisor, for the process that
comes after it.

A buffer is one page with the seal, then the packed state. The seal goes before the buffer is written again and comes
back when the state is whole, so a worker may die at any moment; it holds a checksum all the same, which is the state's
name.
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

PAGE = 4096
SLACK = 1 << 20  # the header of a packed state grows a little over a job
MEMINFO = Path("/proc/meminfo")
log = logging.getLogger(__name__)


class Seal(BaseModel):
    """That the buffer holds a whole state of `size` bytes; whose, and which."""

    model_config = ConfigDict(frozen=True)

    job: str
    generation: int
    position: Position
    size: int = Field(ge=1)
    checksum: str


class _Buffer:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._views: list[weakref.ref[memoryview]] = []
        self._memory: mmap.mmap | None = None
        if os.fstat(descriptor).st_size:
            self._map()

    @property
    def in_use(self) -> bool:
        """Whether anybody still holds the state: a commit that is being written, a joiner that fetches it."""
        return any(view() is not None for view in self._views)

    @property
    def seal(self) -> Seal | None:
        if self._memory is None:
            return None
        try:
            seal = Seal.model_validate_json(self._memory[:PAGE].rstrip(b"\0"))
        except ValidationError:
            return None  # empty, or its writer died
        return seal if PAGE + seal.size <= len(self._memory) else None

    @seal.setter
    def seal(self, seal: Seal | None) -> None:
        assert self._memory is not None
        self._memory[:PAGE] = (seal.model_dump_json().encode() if seal else b"").ljust(PAGE, b"\0")

    def reserve(self, size: int) -> None:
        """Raises OSError when there is no room."""
        length = PAGE + size
        if self._memory is not None and len(self._memory) >= length:
            return
        length += SLACK
        missing = length - os.fstat(self.descriptor).st_size
        if missing > available() // 2:  # these files have no limit of their own: the kernel would kill somebody
            raise OSError(f"{missing >> 20} MB are wanted, {available() >> 20} MB are free on this host")
        os.posix_fallocate(self.descriptor, 0, length)
        self._map()

    def take(self, size: int) -> memoryview:
        assert self._memory is not None
        view = memoryview(self._memory)[PAGE : PAGE + size]
        self._views = [*(other for other in self._views if other() is not None), weakref.ref(view)]
        return view

    def gave(self, block: memoryview) -> bool:
        return any(view() is block for view in self._views)

    def _map(self) -> None:
        # Filled now, not page by page while everybody waits for the copy.
        self._memory = mmap.mmap(self.descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


class SafeStates:
    """Without `descriptors` every state is in the worker's own memory, and nothing is safe. Calls take turns; the
    caller sees to it.
    """

    def __init__(self, descriptors: Sequence[int], job: str) -> None:
        self._job = job
        self._buffers = [_Buffer(descriptor) for descriptor in descriptors]
        self._warned = False

    @property
    def there(self) -> bool:
        """Whether states can be made safe: there is such memory, and none was refused."""
        return bool(self._buffers) and not self._warned

    def reserve(self, size: int) -> None:
        """Have the memory for states of about so many bytes at hand, so that no change has to wait for it. The third is
        for slow commits only.
        """
        for buffer in self._buffers[:2]:
            self._reserved(buffer, size)

    def newest(self) -> SafeCopy | None:
        """The latest whole state of this job, as an earlier process left it; whether it is undamaged shows when it is
        read.
        """
        newest = max((seal for buffer in self._buffers if (seal := self._mine(buffer))), key=_age, default=None)
        return (
            SafeCopy(generation=newest.generation, position=newest.position, name=newest.checksum) if newest else None
        )

    def allocate(self, size: int) -> memoryview:
        """Room for a state: a buffer that nobody reads any more, preferably not the one with the newest state; else
        memory of the process.
        """
        free = [buffer for buffer in self._buffers if not buffer.in_use]
        newest = max(self._buffers, key=lambda buffer: _age(self._mine(buffer)), default=None)
        for buffer in sorted(
            free, key=lambda buffer: buffer is newest
        ):  # stable: the third has no memory before it is needed
            if self._reserved(buffer, size):
                buffer.seal = None
                return buffer.take(size)
        return allocate(size)

    def seal(self, block: memoryview, generation: int, position: Position, name: str | None = None) -> None:
        """The state in `block` is whole; `name` is its checksum, where that is known. Nothing to do for one that
        `allocate` could not make safe.
        """
        for buffer in self._buffers:
            if buffer.gave(block):
                name = name or checksum(block).hex()
                buffer.seal = Seal(
                    job=self._job, generation=generation, position=position, size=len(block), checksum=name
                )

    def read(self, name: str) -> memoryview:
        """The safe state of this name. Raises CommitDamaged."""
        for buffer in self._buffers:
            if (seal := buffer.seal) and (seal.job, seal.checksum) == (self._job, name):
                block = buffer.take(seal.size)
                if checksum(block).hex() != name:
                    raise CommitDamaged(
                        f"the safe state of step {seal.position.step} on this host is damaged: its checksum is wrong"
                    )
                return block
        raise CommitDamaged(
            "the safe state on this host is gone: it was overwritten, or the host's supervisor started again"
        )

    def _mine(self, buffer: _Buffer) -> Seal | None:
        seal = buffer.seal
        return seal if seal and seal.job == self._job else None

    def _reserved(self, buffer: _Buffer, size: int) -> bool:
        try:
            buffer.reserve(size)
        except OSError as error:
            if not self._warned:
                log.warning("no shared memory for the state (%s): a restart goes on from the last commit", error)
            self._warned = True
            return False
        return True


def _age(seal: Seal | None) -> tuple[int, int]:
    """The higher the newer: a generation may begin before the one ahead of it ended."""
    return (seal.generation, seal.position.step) if seal else (-1, -1)


def available() -> int:
    """Bytes of memory that can be had on this host without swapping."""
    line = next(
        (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")), "MemAvailable: 0"
    )
    return int(line.split()[1]) * 1024
