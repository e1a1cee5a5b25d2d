"""Where two things that are right alone meet: a loss in the last step, a joiner in mid-epoch whose rate follows the
workers, a job that is over before the script is, two nets whose parameters have the same names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import autograd, gluon

SAMPLES, STEPS = 24, 3
RANDOM = np.random.RandomState(0)
DATA = [(RANDOM.randn(3).astype("float32"), np.float32(RANDOM.randn())) for _ in range(SAMPLES)]
LOSS = gluon.loss.L2Loss()


def dense(value: float) -> Any:
    net = gluon.nn.Dense(1, in_units=3)
    net.initialize(mx.init.Constant(value))
    return net


@pytest.mark.parametrize("deaths", [[], [Death(STEPS - 1, 1, 0, "applied")]])
def test_a_limit_of_steps_holds_also_when_a_worker_is_lost_in_the_last_of_them(deaths: Sequence[Death]) -> None:
    """Else a job that was given a budget trains to the end of its epochs."""

    def script(job: Any) -> int:
        net, steps = dense(0.1), 0
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(3, samples=SAMPLES, global_batch=4, steps=STEPS):
            for x, y in epoch.batches(DATA):
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
                trainer.step(4)
                steps += 1
        return steps

    steps = Conductor({0: 2}, deaths=deaths, segment_steps=None).run(script)
    assert steps
    assert max(steps) <= STEPS + len(deaths)


def test_who_joins_in_mid_epoch_trains_with_the_rate_that_the_others_have_by_then() -> None:
    """The conductor compares all replicas whenever somebody joins or leaves, and at the end."""

    def script(job: Any) -> Any:
        net = dense(0.1)
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(1, samples=SAMPLES, batching=PerWorker(2, ramp=0)):
            for x, y in epoch.batches(DATA):
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
                trainer.step(len(x))
        return net.weight.data().asnumpy()

    one, other = Conductor({0: 1, 2: 2}, segment_steps=2).run(script)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(("changes", "at"), [("any", 2), ("epoch", 6)])
def test_members_change_where_the_script_allows_it(changes: str, at: int) -> None:
    """A script that carries something from batch to batch would lose it with a change in between."""
    began: list[int] = []

    def script(job: Any) -> int:
        net = dense(0.1)
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(3, samples=SAMPLES, global_batch=4, changes=changes):
            began.append(epoch.step_number)
            for x, y in epoch.batches(DATA):
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
                trainer.step(4)
        return 1

    assert Conductor({0: 2, 2: 3}, segment_steps=1).run(script) == [1] * 3
    assert min(set(began) - {0}) == at


def test_a_place_for_changes_that_there_is_not_is_refused() -> None:
    job = ElasticJob.join()
    job.trainer(dense(0.1).collect_params(), "sgd")
    with pytest.raises(ValueError, match="changes='never'"):
        job.epochs(1, samples=SAMPLES, global_batch=4, changes="never")  # type: ignore[arg-type]


def test_a_trainer_that_adds_up_beside_one_that_steps_is_refused() -> None:
    """Its sum would be zeroed at each step of the other, without a word."""
    job = ElasticJob.join()
    one, other = dense(0.1), dense(0.2)
    other.collect_params().setattr("grad_req", "add")
    first = job.trainer(one.collect_params(), "sgd", {"learning_rate": 0.1})
    job.trainer(other.collect_params(), "sgd", {"learning_rate": 0.1})
    epoch = next(iter(job.epochs(1, samples=SAMPLES, global_batch=4)))
    batches = epoch.batches(DATA)
    x, y = next(batches)
    with autograd.record():
        loss = LOSS(one(x), y) + LOSS(other(x), y)
    loss.backward()
    first.step(4)
    with pytest.raises(RuntimeError, match="same batches"):
        next(batches)


def test_what_is_reduced_after_the_job_is_over_is_no_number_and_no_error() -> None:
    """The script has its last validation before it, and its model to save."""
    net = dense(0.1)
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=4):
        for x, y in epoch.batches(DATA):
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(4)
        job._loop.membership.over = True
        assert math.isnan(epoch.reduce("accuracy", 1.0, 2))


def test_statistics_of_two_nets_with_the_same_names_are_all_averaged() -> None:
    def net() -> Any:
        network = gluon.nn.HybridSequential(prefix="net_")
        with network.name_scope():
            network.add(gluon.nn.Dense(2, in_units=3), gluon.nn.BatchNorm(in_channels=2))
        network.initialize()
        return network

    trainers = [gluon.Trainer(net().collect_params(), "sgd") for _ in range(2)]
    pairs = TrainingState(SimpleNamespace(collect_params=dict), *trainers)._mean_variance_pairs()
    assert len({id(half.copies[0]) for pair in pairs for half in pair}) == 4


def test_a_voided_step_leaves_no_trace_in_the_running_statistics() -> None:
    """Its batch comes again, and would be counted twice."""

    def script(job: Any) -> Any:
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(2, in_units=3), gluon.nn.BatchNorm(in_channels=2), gluon.nn.Dense(1, in_units=2))
        net.initialize(mx.init.Constant(0.1))
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=4, average_statistics=False):
            for x, y in epoch.batches([DATA[0]] * SAMPLES):
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
                trainer.step(4)
        return net[1].running_mean.data().asnumpy()

    def means(*deaths: Death) -> list[Any]:
        return Conductor({0: 2}, deaths=deaths, segment_steps=None).run(script)

    assert np.array_equal(means()[0], means(Death(2, 1, 0, "before"))[0])
