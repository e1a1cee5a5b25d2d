"""The zeros that are pushed in the place of workers that will never push, and by workers that have not come so far.

In a server each request for a key is one of a round, and the round is answered when it has as many as there are
workers. Once all survivors have pushed a key it is answered, or lost workers owe for it, one each at most; so zeros are
pushed one by one until it is answered, and after each the servers are heard (`Store.flush`), so that none is pushed too
many. That happens all the same where a key has several parts, of which the lost worker had pushed some, and where
something of it was still on its way: then zeros of ours begin a round that nobody else will fill, and are filled up.
Before the group is left everything must have been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.engine import Store
from dyntrain.training.worker.membership.window import Key, windows_of


@dataclass
class _Pushed:
    """Of one part, by this worker: how often, and what is not answered of it."""

    count: int = 0
    open: list[tuple[Any, Callable[[], bool]]] = field(default_factory=list)  # with its array, which must live so long

    def look(self) -> int:
        self.open = [each for each in self.open if not each[1]()]
        return len(self.open)


class Zeros:
    """Of one generation, in which no exchange begins any more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filled: dict[Any, _Pushed] = {}
        self._owed: dict[Any, _Pushed] = {}

    def fill(self, keys: Sequence[Key]) -> None:
        """One for each, in this worker's own place; a second time for none. They are with the servers then."""
        for pushed in self._filled.values():
            pushed.look()  # and let go of what is answered
        for part in [part for key in keys for part in key.parts if part not in self._filled]:
            self._filled[part] = _Pushed()
            self._push(self._filled[part], part, 1)
        self._store.flush()

    def mend(
        self, keys: Sequence[Key], count: int, workers: int, has: Callable[[Key], bool], pause: Callable[[], None]
    ) -> int:
        """Until each key is answered: to this worker's own request, where it has filled it or `has` it by now, and to
        every zero. All survivors' requests are with the servers already, and the lost workers owe `count` at most.
        Where that is not so `pause` comes before each one more; returns how often.
        """
        rounds = 0
        for window in windows_of(keys):
            while True:
                self._store.flush()
                due = [(part, *self._due(part, key, count, workers, has)) for key in window for part in key.parts]
                if all(done for _, done, _, _ in due):
                    break
                if not any(zeros for _, _, zeros, _ in due):
                    rounds += 1
                    pause()
                    due = [(part, done, late, 0) for part, done, _, late in due]
                for part, _, zeros, _ in due:
                    self._push(self._owed.setdefault(part, _Pushed()), part, zeros)
        return rounds

    def _due(self, part: Any, key: Key, count: int, workers: int, has: Callable[[Key], bool]) -> tuple[bool, int, int]:
        """Whether all of the part is answered; zeros that are to be pushed for it now, and after a pause."""
        filled, owed = self._filled.get(part), self._owed.setdefault(part, _Pushed())
        is_open = owed.look()
        answered = has(key) if filled is None else not filled.look()
        if answered or owed.count > is_open:  # the round of the exchange is over: what is open is of the next
            more = max(1, workers - is_open) if is_open else 0
            return answered and not is_open, more, 0
        return False, int(owed.count < count), 1

    def _push(self, pushed: _Pushed, part: Any, count: int) -> None:
        """`pushpull`, never `push`: after one pushpull a plain push is not answered."""
        for _ in range(count):
            zeros = mx.nd.zeros((part.length,), dtype=part.dtype)
            zeros.wait_to_read()
            self._store.pushpull_part(part, zeros)
            pushed.open.append((zeros, self._store.watch(zeros)))
            pushed.count += 1
