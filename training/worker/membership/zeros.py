"""The zeros that are pushed in the place of workers that will never push."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.engine import Store


class Zeros:
    """Before the group is left each must have been answered: whatever is under way is waited for there. More may have
    been pushed than were owed, and those open a round that nobody else will fill.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: Counter[Any] = Counter()  # of a part, how many times some were pushed that are not all answered
        self._changed = threading.Condition()

    def push(self, parts: Sequence[Any], count: int) -> None:
        """`count` for each. `pushpull`, never `push`: after one pushpull a plain push is not answered."""
        for part in parts:
            pushed = [mx.nd.zeros((part.length,), dtype=part.dtype) for _ in range(count)]
            for zeros in pushed:
                zeros.wait_to_read()
                self._store.pushpull_part(part, zeros)
            with self._changed:
                self._open[part] += 1
            threading.Thread(target=self._await, args=(part, pushed), daemon=True).start()

    def settle(self, seconds: float) -> int:
        """Pushes one more for what is open, whenever nothing was answered for so long, until nothing is. Returns how
        often. The coordinator bounds it: it ends the process.
        """
        rounds = 0
        while left := self._left(seconds):
            rounds += 1
            self.push(left, 1)
        return rounds

    def _left(self, seconds: float) -> list[Any]:
        """What is open once nothing was answered for so long."""
        with self._changed:
            while before := self._open.total():
                if not self._changed.wait_for(lambda before=before: self._open.total() < before, seconds):  # type: ignore[misc]
                    return [part for part, count in self._open.items() if count]
        return []

    def _await(self, part: Any, pushed: Sequence[Any]) -> None:
        """All of them: which of those of one part are sent first is the engine's to choose."""
        for zeros in pushed:
            zeros.wait_to_read()
        with self._changed:
            self._open[part] -= 1
            self._changed.notify_all()
