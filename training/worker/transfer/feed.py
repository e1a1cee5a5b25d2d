"""A training state in transfer: a block that fills from the front, while other threads read the filled part."""

from __future__ import annotations

import threading

CHUNK_BYTES = 1 << 20  # small against a state, so that the end of a chain lags little behind its beginning


class Feed:
    """A block of memory with a packed state that arrives chunk by chunk. The class is thread-safe.

    `origin` names the worker that packed the state. Chunks of different origins must not be mixed, as a part of the
    state differs from worker to worker.
    """

    def __init__(self, block: memoryview, origin: str, chunk: int = CHUNK_BYTES) -> None:
        self.block, self.origin, self.chunk = block, origin, chunk
        self.chunks = -(-len(block) // chunk)
        self._ready = 0
        self._name: str | None = None
        self._void = False
        self._changed = threading.Condition()

    @classmethod
    def whole(cls, block: memoryview, origin: str, chunk: int = CHUNK_BYTES) -> Feed:
        """Return a feed whose block already contains the complete state.

        The state's checksum (`name`) may be set later.
        """
        feed = cls(block, origin, chunk)
        feed._ready = feed.chunks
        return feed

    @property
    def ready(self) -> int:
        """The number of chunks that have arrived, counted from the block's start."""
        return self._ready

    @property
    def received_bytes(self) -> int:
        return min(len(self.block), self._ready * self.chunk)

    @property
    def name(self) -> str | None:
        """The checksum of the whole block, or None while the checksum is unknown."""
        return self._name

    @property
    def is_void(self) -> bool:
        """Whether this feed gets no more chunks, because another feed replaced it or the transfer is over."""
        return self._void

    def part(self, index: int) -> memoryview:
        return self.block[index * self.chunk : (index + 1) * self.chunk]

    def add_chunk(self) -> None:
        with self._changed:
            self._ready += 1
            self._changed.notify_all()

    def finish(self, name: str) -> None:
        with self._changed:
            self._name = name
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._void = True
            self._changed.notify_all()

    def wait(self, index: int, timeout_seconds: float) -> bool:
        """Wait for chunk `index`, or, if `index` is behind the last chunk, for the checksum.

        Returns True once the chunk or the checksum has arrived or the feed is void, and False after `timeout_seconds`.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._void or self._has_arrived(index), timeout_seconds)

    def _has_arrived(self, index: int) -> bool:
        return index < self._ready or (index >= self.chunks and self._name is not None)
