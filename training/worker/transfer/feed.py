"""A state on its way: a block that fills from the front, while others read what is there already."""

from __future__ import annotations

import threading

CHUNK = 1 << 20  # small against a state, so that the last of a chain is soon behind the first


class Feed:
    """`origin` names who packed the state: of two origins the bytes may differ where workers do. Threads share it."""

    def __init__(self, block: memoryview, origin: str, chunk: int = CHUNK) -> None:
        self.block, self.origin, self.chunk = block, origin, chunk
        self.chunks = -(-len(block) // chunk)
        self._ready = 0
        self._name: str | None = None
        self._void = False
        self._changed = threading.Condition()

    @classmethod
    def whole(cls, block: memoryview, origin: str, chunk: int = CHUNK) -> Feed:
        """Of a state that is all there; its name may come later."""
        feed = cls(block, origin, chunk)
        feed._ready = feed.chunks
        return feed

    @property
    def ready(self) -> int:
        """How many chunks are there, from the first on."""
        return self._ready

    @property
    def received(self) -> int:
        return min(len(self.block), self._ready * self.chunk)

    @property
    def name(self) -> str | None:
        """The checksum of the whole block, once it is known."""
        return self._name

    @property
    def void(self) -> bool:
        """Nothing more will come: another feed took its place, or the generation is over."""
        return self._void

    def part(self, index: int) -> memoryview:
        return self.block[index * self.chunk : (index + 1) * self.chunk]

    def one_more(self) -> None:
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

    def wait(self, index: int, seconds: float) -> bool:
        """Whether chunk `index` is there, or for the index behind the last one the name; or the feed is void. Waits at
        most `seconds` for it.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._void or self._has(index), seconds)

    def _has(self, index: int) -> bool:
        return index < self._ready or (index >= self.chunks and self._name is not None)
