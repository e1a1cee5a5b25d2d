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
from fake_servers import FakeEngine, FakeStore, Gradient, Servers
from hypothesis import given
from hypothesis import strategies as st
from job_bed import JobBed, instance

import mxnet as mx  # isort: skip
from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus, StepVerdict
from dyntrain.training.protocol.wire import FromWorker
from dyntrain.training.sampling.statistics import averages_of, weighted_moments
from dyntrain.training.session.generation.release import Release
from dyntrain.training.worker.membership.step import StepGuard
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import gluon

AT = Position(epoch=1, offset=0, step=8)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 999))
def test_averaged_statistics_are_those_of_all_samples_together(sizes: list[int], seed: int) -> None:
    shares = [np.random.default_rng([seed, i]).normal(3.0 * i, 1.0 + i, size=(size, 4)) for i, size in enumerate(sizes)]
    result = averages_of(
        np.sum([weighted_moments(share.mean(axis=0), share.var(axis=0), len(share)) for share in shares], axis=0)
    )
    everything = np.concatenate(shares)
    assert result is not None
    assert np.allclose(result[0], everything.mean(axis=0))
    assert np.allclose(result[1], everything.var(axis=0))


def test_who_had_no_sample_changes_nothing_and_without_any_there_is_no_average() -> None:
    mine = weighted_moments(np.array([2.0]), np.array([3.0]), 5)
    idle = weighted_moments(np.array([100.0]), np.array([100.0]), 0)
    result = averages_of(mine + idle)
    assert result is not None
    assert (result[0][0], result[1][0]) == (2.0, 3.0)
    assert averages_of(idle) is None


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


def test_t7_a_loss_while_statistics_are_averaged_frees_the_others_and_keeps_what_did_arrive() -> None:
    """And a loss in a step leaves the statistics' key alone: zeros that nobody waits for are answered by none."""
    keys = [("0", (2,), "float32"), ("1", (2,), "float32"), ("statistics", (3,), "float64")]
    for numbers in ([2], [0, 1]):
        servers = Servers(keys, 2)
        store = FakeStore(servers, "here")
        sent: Queue[FromWorker] = Queue()
        guard = StepGuard(FakeEngine(store), sent.put)  # type: ignore[arg-type]
        guard.formed(1, AT)
        gradients = [Gradient() for _ in numbers]
        taken: list[int] = []
        begun = threading.Event()

        own = [(servers.keys[number], gradient) for number, gradient in zip(numbers, gradients, strict=True)]

        def push(store: FakeStore = store, own: Any = own, begun: threading.Event = begun) -> None:
            for key, gradient in own:
                store.push(key, gradient)
            begun.set()

        worker = threading.Thread(
            target=guard.run,
            args=(AT, push, gradients, lambda taken=taken: taken.append(1)),
            kwargs={"first": numbers[0]},
            daemon=True,
        )
        worker.start()
        assert begun.wait(patient(20))
        guard.handle(Abort(generation=1))
        status = sent.get(timeout=patient(20))
        assert isinstance(status, StepStatus)
        assert (status.phase, status.answered, status.keys) == ("wait", numbers[0], tuple(numbers))
        guard.handle(Pump(generation=1, number=1, keys=status.keys, workers=2))
        assert isinstance(sent.get(timeout=patient(20)), Pumped)
        assert [part.key for _, part in servers.taken] == 2 * [keys[number][0] for number in numbers]
        guard.handle(StepVerdict(generation=1, position=AT))
        worker.join(patient(20))
        assert taken == [1], "the position stands, so what arrived is taken"


def test_t7_a_loss_before_the_next_epochs_first_step_does_not_lead_back_over_the_boundary() -> None:
    """A Module counts batches: its last step's position names the epoch that ended, and a verdict there would have it
    trained again.
    """
    sent: list[FromWorker] = []
    guard = StepGuard(FakeEngine(FakeStore(Servers([], 2), "here")), sent.append)  # type: ignore[arg-type]
    last, boundary = Position(epoch=0, offset=9, step=9), Position(epoch=1, offset=0, step=9)
    guard.formed(1, Position(epoch=0, offset=8, step=8))
    assert guard.run(last, lambda: None, [], lambda: None)
    release = Release(1, 2, 0.0)
    for instance_id, here in (("a", last), ("b", boundary)):
        guard.set_position(here)
        guard.handle(Abort(generation=1))
        status = sent.pop()
        assert isinstance(status, StepStatus)
        release.record_status(instance_id, status, ["a", "b"])
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
