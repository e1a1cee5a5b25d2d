"""BatchNorm's running statistics over the workers: if they differ, a model validates differently on each, and a commit
holds one worker's view.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable
from queue import Queue
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from hypothesis import given
from hypothesis import strategies as st
from job_bed import JobBed, instance

import mxnet as mx  # isort: skip
from dyntrain.training.engine.store import PartedStore, split
from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus, StepVerdict
from dyntrain.training.protocol.wire import FromWorker
from dyntrain.training.sampling.statistics import averaged, weighted
from dyntrain.training.session.generation.release import Release
from dyntrain.training.worker.membership.step import StepGuard
from dyntrain.training.worker.membership.window import Window
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import gluon

AT = Position(epoch=1, offset=0, step=8)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 999))
def test_averaged_statistics_are_those_of_all_samples_together(sizes: list[int], seed: int) -> None:
    shares = [np.random.default_rng([seed, i]).normal(3.0 * i, 1.0 + i, size=(size, 4)) for i, size in enumerate(sizes)]
    result = averaged(np.sum([weighted(share.mean(axis=0), share.var(axis=0), len(share)) for share in shares], axis=0))
    everything = np.concatenate(shares)
    assert result is not None
    assert np.allclose(result[0], everything.mean(axis=0))
    assert np.allclose(result[1], everything.var(axis=0))


def test_who_had_no_sample_changes_nothing_and_without_any_there_is_no_average() -> None:
    mine = weighted(np.array([2.0]), np.array([3.0]), 5)
    idle = weighted(np.array([100.0]), np.array([100.0]), 0)
    result = averaged(mine + idle)
    assert result is not None
    assert (result[0][0], result[1][0]) == (2.0, 3.0)
    assert averaged(idle) is None


def test_the_statistics_of_every_batchnorm_go_out_and_come_back() -> None:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4), gluon.nn.BatchNorm(), gluon.nn.Dense(3), gluon.nn.BatchNorm())
    net.initialize(mx.init.Xavier())
    net(mx.nd.ones((2, 3)))
    state = TrainingState(net, gluon.Trainer(net.collect_params(), "sgd", kvstore=None))
    means, variances = state.statistics()
    assert (means.tolist(), variances.tolist()) == ([0.0] * 7, [1.0] * 7)
    state.set_statistics(np.arange(7.0), np.arange(7.0) + 10)
    assert [values.tolist() for values in state.statistics()] == [list(range(7)), list(range(10, 17))]
    assert net[3].running_var.data().asnumpy().tolist() == [14.0, 15.0, 16.0]


class Unanswered:
    """A gradient whose sum does not come until the zeros have been pushed."""

    def __init__(self) -> None:
        self.answer = threading.Event()

    def wait_to_read(self) -> None:
        assert self.answer.wait(patient(20))


class Server:
    """What the native store is to PartedStore; remembers the keys, and answers when `owed` zeros have come for each."""

    release = "zeros"

    def __init__(self, keys: list[tuple[str, tuple[int, ...], str]]) -> None:
        self.pushed: list[str] = []
        self.owed = 1
        self.waiting: dict[str, Unanswered] = {}
        parts = split(keys)
        self.names = {part.number: part.key for part in parts}
        self.kvstore = PartedStore(self, parts)

    def wait(self, array: Any) -> None:
        array.wait_to_read()

    def pushpull(self, number: int, value: Any, out: Any = None, priority: int = 0) -> None:
        name = self.names[number]
        self.pushed.append(name)
        if self.pushed.count(name) == self.owed:
            self.waiting[name].answer.set()


def test_t7_a_loss_while_statistics_are_averaged_frees_the_others_and_keeps_what_did_arrive() -> None:
    """And a loss in a step leaves the statistics' key alone: zeros for a key that nobody waits for take rounds to be
    answered.
    """
    server = Server([("0", (2,), "float32"), ("1", (2,), "float32"), ("statistics", (3,), "float64")])
    said: list[FromWorker] = []
    pumped = threading.Event()

    def hear(message: FromWorker) -> None:
        if isinstance(message, Pumped):
            pumped.set()
        else:
            said.append(message)

    guard = StepGuard(server, hear)
    for first, gradients, pushed in (
        (2, [Unanswered()], ["statistics"]),
        (0, [Unanswered(), Unanswered()], ["0", "1"]),
    ):
        guard.formed(first + 1, AT)
        taken: list[int] = []
        begun = threading.Event()
        worker = threading.Thread(
            target=guard.run,
            args=(AT, begun.set, gradients, lambda taken=taken: taken.append(1)),
            kwargs={"first": first},
            daemon=True,
        )
        worker.start()
        assert begun.wait(patient(20))
        guard.handle(Abort(generation=first + 1))
        status = said.pop()
        assert isinstance(status, StepStatus)
        assert (status.phase, status.answered) == ("wait", first)
        server.pushed.clear()
        server.waiting = dict(zip(pushed, gradients, strict=True))
        pumped.clear()
        guard.handle(Pump(generation=first + 1))
        assert pumped.wait(patient(20))
        assert server.pushed == pushed
        guard.handle(StepVerdict(generation=first + 1, position=AT))
        worker.join(patient(20))
        assert taken == [1], "the position stands, so what arrived is taken"


def test_t7_zeros_are_pushed_until_the_sums_are_there_however_many_workers_owe_theirs() -> None:
    """The order says how many are owed; where it is wrong, as the lost worker had pushed some itself or another one
    never will, what is waited for gets more.
    """
    server = Server([("0", (2,), "float32"), ("1", (2,), "float32")])
    server.owed, gradients = 4, [Unanswered(), Unanswered()]
    server.waiting = {"0": gradients[0], "1": gradients[1]}
    said: Queue[FromWorker] = Queue()
    guard = StepGuard(server, said.put)  # type: ignore[arg-type]
    guard.formed(1, AT)
    begun = threading.Event()
    worker = threading.Thread(target=guard.run, args=(AT, begun.set, gradients, lambda: None), daemon=True)
    worker.start()
    assert begun.wait(patient(20))
    guard.handle(Abort(generation=1))
    assert isinstance(said.get(timeout=patient(20)), StepStatus)
    guard.handle(Pump(generation=1, count=2))
    done = said.get(timeout=patient(20))
    assert isinstance(done, Pumped)
    assert done.rounds == 2, "two at once, then one more each round"
    assert sorted(server.pushed) == ["0"] * 4 + ["1"] * 4
    guard.handle(StepVerdict(generation=1, position=AT))
    worker.join(patient(20))


def test_t7_zeros_are_a_window_ahead_of_the_answers_so_that_a_large_model_does_not_fill_the_memory() -> None:
    parts = split([(str(number), (1_000_000 if number else 12_000_000,), "float32") for number in range(30)])
    keys = [(number, [part for part in parts if part.key == str(number)]) for number in range(30)]
    window = Window(keys, limit=10 << 20)
    assert [part.key for part in window.next(0)] == ["0"] * 12, "a key larger than the window goes out whole"
    assert window.next(0) == []
    assert [part.key for part in window.next(1)] == ["1", "2", "3"]
    assert [part.key for part in window.next(3)] == ["4", "5"]
    assert [part.key for part in window.open(4)] == ["4", "5"]
    assert window.next(29) == [part for part in parts if part.key == "29"]
    assert window.share < 0.1


def test_t7_a_loss_before_the_next_epochs_first_step_does_not_lead_back_over_the_boundary() -> None:
    """A Module counts batches: its last step's position names the epoch that ended, and a verdict there would have it
    trained again.
    """
    said: list[FromWorker] = []
    guard = StepGuard(Server([]), said.append)  # type: ignore[arg-type]
    last, boundary = Position(epoch=0, offset=9, step=9), Position(epoch=1, offset=0, step=9)
    guard.formed(1, Position(epoch=0, offset=8, step=8))
    assert guard.run(last, lambda: None, [], lambda: None)
    release = Release(1, 2, 0.0)
    for instance_id, here in (("a", last), ("b", boundary)):
        guard.stands(here)
        guard.handle(Abort(generation=1))
        status = said.pop()
        assert isinstance(status, StepStatus)
        release.said(instance_id, status, ["a", "b"])
    assert release.verdict == boundary, "also when one of them has not heard yet that it goes on"


@pytest.mark.jobs
def test_t7_workers_hold_the_same_statistics_after_each_epoch_also_when_one_is_lost(
    make_bed: Callable[..., JobBed],
) -> None:
    bed = make_bed("--norm", "--epochs", "40", "--samples", "193", workers=3)
    bed.begin("ABC")
    bed.wait_for_epoch(1)
    bed.kill_worker("C")
    bed.wait_for(lambda: bed.events("released"), 30, "the survivors are free")
    bed.finish()
    assert bed.events("restart") == []
    assert bed.audit().exact
    broken = bed.events("released")[0]["position"]["epoch"]
    seen: dict[int, set[str]] = defaultdict(set)
    for letter in "AB":
        log = (bed.folder / f"worker-{instance(letter)}.log").read_text()
        for epoch, workers, digest in re.findall(r"STATISTICS (\d+) (\d+) (\w+)", log):
            assert int(workers) >= 2
            seen[int(epoch)].add(digest)
    assert len(seen) == 40
    assert {epoch for epoch, digests in seen.items() if len(digests) > 1} <= {broken, broken - 1}
