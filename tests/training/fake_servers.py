"""ps-lite's servers as they are seen by those that wait: a request for a part is one of a round, and a round is
answered when it has as many as there are workers, whoever they are from.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dyntrain.controller.local.pace import patient
from dyntrain.training.engine.store import Part, split
from dyntrain.training.worker.membership.window import Key


@dataclass(eq=False)
class Request:
    of: str  # the worker
    answered: threading.Event = field(default_factory=threading.Event)
    then: Callable[[], None] = lambda: None


class Servers:
    """Of so many workers. What has been put into `late` arrives one by one, with every request after that."""

    def __init__(self, keys: Sequence[tuple[str, tuple[int, ...], str]], workers: int) -> None:
        self.workers = workers
        parts = split(keys, 2)
        self.keys = [Key(n, tuple(p for p in parts if p.key == name)) for n, (name, _, _) in enumerate(keys)]
        self.rounds: dict[Part, list[Request]] = defaultdict(list)
        self.taken: list[tuple[str, Part]] = []
        self.late: list[tuple[str, Part]] = []
        self._turn = threading.RLock()

    def take(self, worker: str, part: Part, request: Request | None = None) -> Request:
        with self._turn:
            request = request or Request(worker)
            self.taken.append((worker, part))
            self.rounds[part].append(request)
            if len(self.rounds[part]) == self.workers:
                answered = self.rounds.pop(part)
                for each in answered:
                    each.answered.set()
                for each in answered:
                    each.then()
            if self.late:
                self.take(*self.late.pop(0))
            return request

    def open(self, workers: Collection[str]) -> list[tuple[str, Part]]:
        """Requests of these that nobody has answered."""
        return [(each.of, part) for part, requests in self.rounds.items() for each in requests if each.of in workers]

    def count(self, worker: str, part: Part) -> int:
        return self.taken.count((worker, part))


class Gradient:
    """A key's array on one worker: there once all parts are answered."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    @property
    def there(self) -> bool:
        return bool(self.requests) and all(request.answered.is_set() for request in self.requests)

    def wait_to_read(self) -> None:
        """Not for the sum, before it is pushed."""
        for request in self.requests:
            assert request.answered.wait(patient(20))


class FakeStore:
    """One worker's. What is answered is seen with the next `flush`, and not before."""

    def __init__(self, servers: Servers, worker: str) -> None:
        self._servers, self._worker = servers, worker
        self._requests: dict[int, tuple[Any, list[Request]]] = {}  # by the array, which is kept
        self._seen: set[int] = set()
        self._own: dict[Part, Request] = {}
        self._seen_parts: set[Part] = set()
        self.flushed = 0

    def push(self, key: Key, gradient: Gradient) -> None:
        """The worker's own gradient: each part when the one before is answered."""
        gradient.requests = [Request(self._worker) for _ in key.parts]
        self._requests[id(gradient)] = (gradient, gradient.requests)
        self._own |= dict(zip(key.parts, gradient.requests, strict=True))

        def follow(place: int) -> None:
            if place < len(key.parts):
                request = gradient.requests[place]
                request.then = lambda: follow(place + 1)
                self._servers.take(self._worker, key.parts[place], request)

        follow(0)

    def die(self) -> None:
        """It hears of no answer any more."""
        for request in self._own.values():
            request.then = lambda: None

    def has_answer(self, part: Part) -> bool:
        return part in self._seen_parts

    def parts_of(self, key_numbers: Sequence[int]) -> list[Part]:
        return [part for number in key_numbers for part in self._servers.keys[number].parts]

    def pushpull_part(self, part: Part, flat: Any) -> None:
        self._requests[id(flat)] = (flat, [self._servers.take(self._worker, part)])

    def flush(self) -> None:
        self.flushed += 1
        there = {
            name
            for name, (_, requests) in self._requests.items()
            if all(request.answered.is_set() for request in requests)
        }
        self._seen |= there
        self._seen_parts |= {part for part, request in self._own.items() if request.answered.is_set()}

    def watch(self, array: Any) -> Callable[[], bool]:
        return lambda: id(array) in self._seen


class FakeEngine:
    """On such a store; whoever waits is blocked until the servers have answered."""

    release: Literal["zeros", "error"] = "zeros"

    def __init__(self, store: FakeStore) -> None:
        self.kvstore = store
        self.sums_end = threading.Event()
        self.sums_end.set()

    def begin_push(self, array: Any) -> Callable[[], None]:
        def wait() -> None:
            assert self.sums_end.wait(patient(20))

        return wait

    def wait(self, array: Gradient) -> None:
        array.wait_to_read()
