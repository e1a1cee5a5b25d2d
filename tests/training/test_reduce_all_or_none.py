"""A number that is reduced while a worker is lost: a value on all survivors or on none, also where an all-reduce has
ended for some of them only. Scripts decide by it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Literal, cast

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.engine import SumsLost
from dyntrain.training.protocol.messages import Abort, Broken, Position, StepStatus, StepVerdict
from dyntrain.training.protocol.wire import FromWorker
from dyntrain.training.session.generation.release import Release
from dyntrain.training.session.orders import ToWorker
from dyntrain.training.worker.loop.agreed.reduction import reduce
from dyntrain.training.worker.membership.step import StepGuard

AT = Position(epoch=0, offset=4, step=2)
WORKERS = 3


class AllReduce:
    """Of its exchanges `ends` come to their end; the next is lost once it is broken off."""

    release: Literal["zeros", "error"] = "error"

    def __init__(self, ends: int) -> None:
        self.ends, self.sums = ends, 0
        self.waits, self.broken = threading.Event(), threading.Event()

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def wait(self, array: Any) -> None:
        self.sums += 1
        if self.sums > self.ends:
            self.waits.set()
            assert self.broken.wait(patient(60))
            raise SumsLost("closed")
        if self.sums == 1:
            array *= WORKERS  # all say the same

    def break_off(self) -> None:
        self.broken.set()


class Worker:
    """As a membership is to `reduce`."""

    shared = True
    num_workers = WORKERS

    def __init__(self, ends: int, say: Callable[[str, StepStatus], None], name: str) -> None:
        self.engine, self.name = AllReduce(ends), name
        self.kvstore = self
        self.results: list[float] = []
        self.guard = StepGuard(cast(Any, self.engine), self._pass_on)
        self.guard.formed(1, AT)
        self._say = say
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.results.append(reduce(cast(Any, self), AT, "accuracy", 5.0, None, False))

    def _pass_on(self, message: FromWorker) -> None:
        if isinstance(message, StepStatus):
            self._say(self.name, message)
        else:
            assert isinstance(message, Broken)

    def pushpull(self, key: str, value: Any) -> None:
        """The engine's wait makes the sum."""

    def exchange(self, keys: Any, push: Callable[[], None], arrays: Any, aside: bool = False) -> bool:
        return self.guard.exchange([0], push, arrays, aside)

    def apply(self, after: Position, update: Callable[[], None]) -> bool:
        return self.guard.apply(after, update)

    def all_have_sums(self, again: Callable[[], bool]) -> bool:
        return self.guard.all_have_sums(again)


def reduced(*ends: int) -> list[float]:
    """What the survivors get, of whom each ends so many exchanges before the third worker's death breaks the rest."""
    release = Release(1, WORKERS, 0.0)
    names = [f"w{number}" for number in range(len(ends))]
    workers: dict[str, Worker] = {}
    lock = threading.Lock()

    def tell(name: str, status: StepStatus) -> None:
        with lock:
            release.record_status(name, status, names)
            if release.verdict is None:
                return
        verdict = StepVerdict(generation=1, position=release.verdict, exchanges=release.finished_exchanges)
        for worker in workers.values():
            worker.guard.handle(verdict)

    workers |= {name: Worker(count, tell, name) for name, count in zip(names, ends, strict=True)}
    for worker, count in zip(workers.values(), ends, strict=True):
        assert count == 2 or worker.engine.waits.wait(patient(60))
        worker.thread.join(patient(60) if count == 2 else 0)
    for order in release.ask_status(names):
        assert isinstance(order, ToWorker)
        assert isinstance(order.message, Abort)
        workers[order.instance_id].guard.handle(order.message)
    for worker in workers.values():
        worker.thread.join(patient(60))
    return [result for worker in workers.values() for result in worker.results]


@pytest.mark.parametrize("ends", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_what_came_to_all_is_a_number_on_all(ends: tuple[int, ...]) -> None:
    assert reduced(*ends) == [15.0, 15.0]


@pytest.mark.parametrize("ends", [(0, 1), (1, 0), (0, 0)])
def test_what_did_not_come_to_one_is_a_number_on_none(ends: tuple[int, ...]) -> None:
    assert [math.isnan(value) for value in reduced(*ends)] == [True, True]
