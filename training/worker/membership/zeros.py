"""Pushes zeros in place of lost workers, and in place of gradients that survivors have not pushed yet.

A server counts the requests for a part of a gradient in rounds, and answers a round when it has received one request
for each worker. When all survivors have pushed a part, the part's round is answered unless requests of lost workers are
missing, at most one of each lost worker. Survivors push zeros one by one until the servers answer the round. After each
zero, the worker waits for the servers' answers (`Store.flush`), so that it pushes no surplus zero. A worker pushes a
part of a key only after the previous part was answered, so a lost worker has pushed no part that follows an unanswered
part.

If a lost worker's request arrives late, one of the zeros begins a new round, to which no other worker contributes. The
new round is completed with zeros, as every request must be answered before the workers leave the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dyntrain.training.engine import Store
from dyntrain.training.worker.arrays import zeros
from dyntrain.training.worker.membership.window import Key, windows_of


@dataclass
class _PushedZeros:
    """The zeros that this worker has pushed for one part: their number, and the requests that are not answered yet."""

    count: int = 0  # zeros pushed so far
    unanswered_requests: list[tuple[Any, Callable[[], bool]]] = field(
        default_factory=list
    )  # an array must exist until its answer

    def count_unanswered(self) -> int:
        self.unanswered_requests = [request for request in self.unanswered_requests if not request[1]()]
        return len(self.unanswered_requests)


class Zeros:
    """Pushes the zeros of one generation, after its last exchange of gradients has begun."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filled: dict[Any, _PushedZeros] = {}
        self._owed: dict[Any, _PushedZeros] = {}

    def push_once(self, keys: Sequence[Key]) -> None:
        """Push zeros once for each part, in place of this worker's own gradient.

        Waits until the servers have the zeros.
        """
        for pushed_zeros in self._filled.values():
            pushed_zeros.count_unanswered()  # frees the arrays of answered requests
        for part in [part for key in keys for part in key.parts if part not in self._filled]:
            self._filled[part] = _PushedZeros()
            self._push_zeros(self._filled[part], part, 1)
        self._store.flush()

    def push_until_answered(
        self,
        keys: Sequence[Key],
        count: int,
        workers: int,
        is_answered: Callable[[Key, Any], bool],
        pause: Callable[[], None],
        max_idle_checks: int,
    ) -> int:
        """For each of `keys`, push zeros until this worker's own requests and all its zeros are answered.

        The requests of `push_once` are regarded as this worker's own requests. For a part that `push_once` did not
        push, `is_answered` says whether this worker's request was answered. Call `push_until_answered` when the servers
        have the requests of all survivors. The requests of at most `count` lost workers may be missing for a part.

        `pause` is called between two checks for answers while no zero has to be pushed. After `max_idle_checks` checks
        without progress, one additional zero is pushed for each key. Returns how often additional zeros were pushed.
        """
        extra_rounds = 0
        for window in windows_of(keys):
            requests_left_before, idle_checks = -1, 0
            while True:
                self._store.flush()
                due_zeros = [dict(self._due_zeros(key, count, workers, is_answered)) for key in window]
                if not any(due_zeros):
                    break
                requests_left = sum(
                    1 + len(self._owed[part].unanswered_requests) for parts in due_zeros for part in parts
                )
                idle_checks, requests_left_before = (
                    (idle_checks + 1 if requests_left == requests_left_before else 0),
                    requests_left,
                )
                if not any(zero_count for parts in due_zeros for zero_count in parts.values()):
                    if idle_checks < max_idle_checks:
                        pause()
                    else:
                        extra_rounds, idle_checks = extra_rounds + 1, 0
                        due_zeros = [dict.fromkeys(list(parts)[:1], 1) for parts in due_zeros]
                for parts in due_zeros:
                    for part, zero_count in parts.items():
                        self._push_zeros(self._owed[part], part, zero_count)
        return extra_rounds

    def _due_zeros(
        self, key: Key, count: int, workers: int, is_answered: Callable[[Key, Any], bool]
    ) -> Iterator[tuple[Any, int]]:
        """Yield each part of `key` with unanswered requests, and the number of zeros to push for the part now."""
        is_first_open_part = True
        for part in key.parts:
            own_zeros, substitute_zeros = self._filled.get(part), self._owed.setdefault(part, _PushedZeros())
            open_requests = substitute_zeros.count_unanswered()
            is_part_answered = is_answered(key, part) if own_zeros is None else not own_zeros.count_unanswered()
            if (
                is_part_answered or substitute_zeros.count > open_requests
            ):  # the exchange's round is over: open requests are of the next
                if open_requests:
                    yield part, max(1, workers - open_requests)
                elif not is_part_answered:
                    yield part, 0
                continue
            missing_zeros = max(0, count - substitute_zeros.count)
            yield part, min(1, missing_zeros) if is_first_open_part else missing_zeros
            is_first_open_part = False

    def _push_zeros(self, pushed_zeros: _PushedZeros, part: Any, count: int) -> None:
        """Push zeros by `pushpull`, never by `push`, as the servers do not answer a plain push after a pushpull."""
        for _ in range(count):
            zero_array = zeros((part.length,), part.dtype)
            zero_array.wait_to_read()
            self._store.pushpull_part(part, zero_array)
            pushed_zeros.unanswered_requests.append((zero_array, self._store.watch(zero_array)))
            pushed_zeros.count += 1
