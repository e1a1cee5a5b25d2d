"""A state in transfer: a block that fills from the front, while other threads read the part that has arrived."""

from __future__ import annotations

import threading

CHUNK_BYTES = 1 << 20  # small against a state, so that the end of a chain lags little behind its beginning


class Feed:
    """A block that fills in chunks. Thread-safe.

    `origin` names the worker that packed the state: bytes from two origins may differ where the workers differ.
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
        """Return a feed with a complete state. The state's checksum (`name`) may be set later."""
        feed = cls(block, origin, chunk)
        feed._ready = feed.chunks
        return feed

    @property
    def ready(self) -> int:
        """The number of chunks that have arrived, from the first on."""
        return self._ready

    @property
    def received(self) -> int:
        return min(len(self.block), self._ready * self.chunk)

    @property
    def name(self) -> str | None:
        """The checksum of the whole block, once it is known."""
        return self._name

    @property
    def is_void(self) -> bool:
        """Whether no more chunks will arrive, as another feed replaced this feed, or the generation is over."""
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
        """Wait for chunk `index`, or after the last chunk for the state's name, or until the feed is void.

        Returns whether one of these has happened, after at most `timeout_seconds`.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._void or self._has_arrived(index), timeout_seconds)

    def _has_arrived(self, index: int) -> bool:
        return index < self._ready or (index >= self.chunks and self._name is not None)
