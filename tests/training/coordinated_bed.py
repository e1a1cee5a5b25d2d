"""A worker's membership in the test's own process: the test plays its coordinator, word by word, and its engine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from bytes_state import AT, Bytes
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import Form, Go, LoopTerms, Position, Proceed, WorkerHello
from dyntrain.training.worker.membership import coordinated as module
from dyntrain.training.worker.membership.client import CoordinatorLost
from dyntrain.training.worker.membership.coordinated import CoordinatedMembership

HERE, HOST, TOKEN = "i-0000000a", "127.0.0.1", "the token"
Log = list[Any]


class Engine:
    """Two workers, of which the other says the same."""

    name = "pslite"
    release = "zeros"

    def __init__(self, log: Log) -> None:
        self.log, self.keys = log, []
        self.kvstore = self

    def form(self, environment: Mapping[str, str], keys: list[Any]) -> dict[str, float]:
        self.keys = keys
        self.log.append("in the group")
        return {"create": 0.0}

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        value *= 2

    def wait(self, array: Any) -> None:
        array.wait_to_read()

    def dissolve(self) -> None:
        self.log.append("dissolved")

    def abandon(self) -> None:
        self.log.append("abandoned")


class Line:
    """In the place of a `CoordinatorClient`. `answers`: what comes after so many words that await an answer."""

    def __init__(self, log: Log) -> None:
        self.log, self.orders = log, SimpleQueue[Any]()
        self.answers: list[list[Any]] = []
        self.hello: WorkerHello | None = None
        self.sent: list[Any] = []
        self.awaited: list[Any] = []
        self.closed = False

    def say(self, message: Any, awaits_answer: bool = False) -> None:
        self.log.append(message.type)
        self.sent.append(message)
        if awaits_answer:
            self._answer(message)

    def enter(self, terms: LoopTerms, generation: int | None) -> None:
        self.log.append("entered")
        self.sent.append((terms, generation))
        self._answer("entered")

    def _answer(self, message: Any) -> None:
        self.awaited.append(message)
        for order in self.answers.pop(0) if self.answers else []:
            self.orders.put(order)

    def next_order(self, seconds: float | None = None) -> Any:
        if self.orders.empty() and not self.answers:
            raise CoordinatorLost("the test says no more")
        return self.orders.get(timeout=patient(30))

    @property
    def has_order(self) -> bool:
        return not self.orders.empty()

    def close(self) -> None:
        self.closed = True

    def of(self, kind: str) -> list[Any]:
        return [message for message in self.sent if getattr(message, "type", None) == kind]


class Worker:
    """`log` has what was said and done, in its order."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, memory: SafeMemory | None = None, **control_file: Any
    ) -> None:
        self.log: Log = []
        self.line, self.engine, self.state = Line(self.log), Engine(self.log), Bytes(7)
        # The membership replaces it; what other tests of this process have put there would answer, too.
        monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
        monkeypatch.setattr(module.atexit, "register", lambda work: self.log.append("at exit"))
        for name, value in (memory.environment if memory else {}).items():
            monkeypatch.setenv(name, value)

        def connect(control: Any, hello: WorkerHello, urgent: Any, safe: Any) -> Any:
            self.line.hello, self.urgent, self.safe = hello, urgent, safe
            self.line._answer(hello)
            return self.line

        monkeypatch.setattr(module, "CoordinatorClient", connect)
        control = ControlFile(
            cluster="c",
            job="j",
            instance_id=HERE,
            private_ip=HOST,
            url="wss://x",
            certificate="",
            token="t",
            mount=str(folder),
            **control_file,
        )
        self.membership = CoordinatedMembership(control, self.engine)  # type: ignore[arg-type]

    def enter(self, *orders: Any, **more: Any) -> Position:
        """`orders` answer the hello and what is said after it, one by one."""
        self.line.answers += [order if isinstance(order, list) else [order] for order in orders]
        terms = {"epochs": 9, "samples": 20, "global_batch": 10, "seed": 0, "batching": "fixed-global", **more}
        return self.membership.enter(self.state, **terms)

    def trains(self, position: Position = AT, generation: int = 2, commit: bool = False, **more: Any) -> None:
        """It has been taken in, with what the process before it left at `position`."""
        name = self.membership._commits.store(None).write(position.step, generation - 1, self.state.pack(position))
        more = {"commit": name, **more}
        self.enter(form(generation, position, **more), Go(generation=generation), go_on(position, generation, commit))
        del self.log[:], self.line.sent[:], self.line.awaited[:]

    def check_in(self, position: Position, *orders: Any) -> Position:
        self.line.answers += [order if isinstance(order, list) else [order] for order in orders]
        return self.membership.boundary(position)


def form(generation: int = 2, position: Position = AT, **more: Any) -> Form:
    fields = {"number": 1, "workers": 3, "environment": {}, "source": HERE, "transfer_token": TOKEN, **more}
    return Form(generation=generation, position=position, **fields)


def go_on(position: Position = AT, generation: int = 2, commit: bool = False) -> Proceed:
    return Proceed(generation=generation, position=position, commit=commit)


@contextlib.contextmanager
def worker_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, memory: SafeMemory | None = None, **control_file: Any
) -> Iterator[Worker]:
    worker = Worker(folder, monkeypatch, memory, **control_file)
    try:
        yield worker
    finally:
        worker.membership.close()
