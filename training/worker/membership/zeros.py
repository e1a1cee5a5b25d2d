"""The zeros that are pushed in the place of workers that will never push, and by workers that have not come so far.

In a server each request for a part is one of a round, and the round is answered when it has as many as there are
workers. Once all survivors have pushed it, it is answered, or lost workers owe for it, one each at most; so zeros are
pushed one by one until it is answered, and after each the servers are heard (`Store.flush`), so that none is pushed too
many. Of a key with several parts each is pushed when the one before is answered: where one was not, a lost worker has
pushed none of those behind it.

Something of the lost worker's may still be on its way. Then a zero of ours begins a round that nobody else will fill,
and which is filled up: before the group is left everything must have been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dyntrain.training.engine import Store
from dyntrain.training.worker.arrays import zeros
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
        self,
        keys: Sequence[Key],
        count: int,
        workers: int,
        has: Callable[[Key, Any], bool],
        pause: Callable[[], None],
        patience: int,
    ) -> int:
        """Until each key is answered: to this worker's own requests, which it has filled, or of which it `has` each
        part by now; and to every zero. All survivors' requests are with the servers already, and the lost workers owe
        `count` at most.

        Where nothing is due, answers are on their way, or others' next parts: `pause` is called before another look.
        After so many looks in vain one more is pushed for each key; returns how often that was.
        """
        rounds = 0
        for window in windows_of(keys):
            before, looks = -1, 0
            while True:
                self._store.flush()
                due = [dict(self._due(key, count, workers, has)) for key in window]
                if not any(due):
                    break
                left = sum(1 + len(self._owed[part].open) for parts in due for part in parts)
                looks, before = (looks + 1 if left == before else 0), left
                if not any(each for parts in due for each in parts.values()):
                    if looks < patience:
                        pause()
                    else:
                        rounds, looks = rounds + 1, 0
                        due = [dict.fromkeys(list(parts)[:1], 1) for parts in due]
                for parts in due:
                    for part, due_now in parts.items():
                        self._push(self._owed[part], part, due_now)
        return rounds

    def _due(self, key: Key, count: int, workers: int, has: Callable[[Key, Any], bool]) -> Iterator[tuple[Any, int]]:
        """The parts of which not all is answered, and how many zeros are to be pushed for each now."""
        first = True
        for part in key.parts:
            filled, owed = self._filled.get(part), self._owed.setdefault(part, _Pushed())
            is_open = owed.look()
            answered = has(key, part) if filled is None else not filled.look()
            if answered or owed.count > is_open:  # the round of the exchange is over: what is open is of the next
                if is_open:
                    yield part, max(1, workers - is_open)
                elif not answered:
                    yield part, 0
                continue
            missing = max(0, count - owed.count)
            yield part, min(1, missing) if first else missing
            first = False

    def _push(self, pushed: _Pushed, part: Any, count: int) -> None:
        """`pushpull`, never `push`: after one pushpull a plain push is not answered."""
        for _ in range(count):
            array = zeros((part.length,), part.dtype)
            array.wait_to_read()
            self._store.pushpull_part(part, array)
            pushed.open.append((array, self._store.watch(array)))
            pushed.count += 1
