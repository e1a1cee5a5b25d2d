"""`job.size` where a Horovod script says `hvd.size()`: its rate and schedule are what they were with so many workers,
whatever the membership is now; or follow it, with `PerWorker`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.protocol.messages import Position, WorkerHello
from dyntrain.training.session.generation.agreement import find_disagreement
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.membership import Membership
from idioms import CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

EACH = 4  # samples of a worker's batch


class Sized(Plain):
    def __init__(self, size: int) -> None:
        self.size = size


def scaled(job: Any, **batching: Any) -> list[Any]:
    """Horovod's MXNet examples: the rate times the number of workers, and a schedule in steps divided by it."""
    net, batch = mlp(), EACH * job.size
    steps = math.ceil(SAMPLES / batch)
    schedule = mx.lr_scheduler.MultiFactorScheduler([steps, 2 * steps], 0.3, base_lr=0.04 * job.size)
    options = {"momentum": 0.9, "learning_rate": 0.04 * job.size, "lr_scheduler": schedule}
    trainer = job.trainer(net.collect_params(), "sgd", options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, **(batching or {"global_batch": batch})):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(x.shape[0])
    return weights(net)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_script_that_was_run_with_so_many_workers_gives_what_it_gave_whoever_comes_and_goes(size: int) -> None:
    conductor = Conductor({0: 1, 2: 3, 4: 2}, [Death(3, 1)], 1, size=size)
    all_close(conductor.run(scaled), scaled(Sized(size)))


@pytest.mark.parametrize(("size", "workers"), [(1, 3), (2, 4), (2, 1), (2, 2)])
def test_with_a_batch_per_worker_rate_and_schedule_are_those_of_the_workers_that_there_are(
    size: int, workers: int
) -> None:
    def script(job: Any) -> list[Any]:
        return scaled(job, batching=PerWorker(EACH, ramp=0))

    all_close(Conductor({0: workers}, size=size).run(script), scaled(Sized(workers)))


class Falling(mx.optimizer.SGD):
    """It lowers its own rate as it updates."""

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        super().update_multi_precision(index, weight, grad, state)
        self.lr *= 0.99


def decays(job: Any, way: str, **batching: Any) -> list[Any]:
    """Rates that a script sets by hand, in each way that Gluon has."""
    net, batch, rate = mlp(), EACH * job.size, 0.04 * job.size
    steps = math.ceil(SAMPLES / batch)
    options: dict[str, Any] = {"momentum": 0.9, "learning_rate": rate}
    schedule = mx.lr_scheduler.MultiFactorScheduler([steps, 2 * steps], 0.6, base_lr=rate)
    if way in ("base_lr", "another scheduler", "none any more"):
        options["lr_scheduler"] = schedule
    optimizer = Falling(**options) if way == "by itself" else mx.optimizer.create("sgd", **options)
    trainer = job.trainer(net.collect_params(), optimizer)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, **(batching or {"global_batch": batch})):
        if way == "set_learning_rate":
            trainer.set_learning_rate(trainer.learning_rate * 0.5)
        elif way == "lr":
            optimizer.lr = rate * 0.5**epoch
        elif way == "base_lr":
            schedule.base_lr = rate * 0.5**epoch
        elif way in ("a scheduler later", "another scheduler") and epoch >= 1:
            optimizer.lr_scheduler = mx.lr_scheduler.MultiFactorScheduler([2 * steps], 0.3, base_lr=rate * 0.8)
        elif way == "none any more" and epoch >= 1:
            optimizer.lr_scheduler = None
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(x.shape[0])
    if way == "set_learning_rate":
        assert trainer.learning_rate == pytest.approx(rate * 0.5**EPOCHS), "what it has set"
    return weights(net)


WAYS = ("set_learning_rate", "lr", "base_lr", "a scheduler later", "another scheduler", "none any more", "by itself")


@pytest.mark.parametrize("way", WAYS)
def test_with_a_batch_per_worker_rates_that_a_script_sets_by_itself_follow_the_workers(way: str) -> None:
    """Its own numbers are for `job.size` workers, and stay what it set: it multiplies what it reads."""

    def script(job: Any) -> list[Any]:
        return decays(job, way, batching=PerWorker(EACH, ramp=0))

    all_close(Conductor({0: 4}, size=2).run(script), decays(Sized(4), way))


@pytest.mark.parametrize("way", WAYS)
def test_with_a_batch_per_worker_all_have_the_rates_that_a_script_sets_whoever_comes_and_goes(way: str) -> None:
    def script(job: Any) -> list[Any]:
        return decays(job, way, batching=PerWorker(EACH, ramp=9))

    results = Conductor({0: 2, 2: 4, 4: 3}, [Death(3, 1)], 1, size=2).run(script)
    assert len(results) == 3
    all_close(results[1:], results[0])


def test_what_save_states_writes_with_a_batch_per_worker_is_read_by_a_script_without_a_job(tmp_path: Path) -> None:
    def script(job: Any) -> list[Any]:
        net = mlp()
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.7, base_lr=0.1)
        trainer = job.trainer(net.collect_params(), "sgd", {"momentum": 0.9, "lr_scheduler": schedule})
        for epoch in job.epochs(1, samples=SAMPLES, batching=PerWorker(EACH)):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(x.shape[0])
        trainer.save_states(str(tmp_path / "states"))
        return weights(net)

    script(ElasticJob.join())
    assert b"dyntrain" not in (tmp_path / "states").read_bytes(), "no class of the job's is pickled"


def test_a_size_that_is_said_twice_and_differently_is_refused() -> None:
    job = ElasticJob.join(size=4)
    job.trainer(mlp().collect_params(), "sgd")
    with pytest.raises(ValueError, match=r"base_workers=2 and ElasticJob.join\(size=4\)"):
        job.epochs(1, samples=SAMPLES, batching=PerWorker(EACH, base_workers=2))
    for alike in (PerWorker(EACH, base_workers=4), PerWorker(EACH)):
        assert alike.of_size(4).rate_factor(2) == 0.5
    assert PerWorker(EACH, base_workers=4).of_size(1).rate_factor(2) == 0.5
    for nonsense in (0, -1, 2.5, "2", True):
        with pytest.raises(ValueError, match="size="):
            ElasticJob.join(size=nonsense)  # type: ignore[arg-type]


class Telling(Membership):
    """Keeps what the worker would tell the coordinator."""

    def enter(self, state: Any, **agreed: Any) -> Position:
        self.agreed = agreed
        return super().enter(state, **agreed)


def hello(instance: str, size: int = 1, **options: Any) -> WorkerHello:
    job = ElasticJob(membership := Telling(ElasticKVStore(None)), size)
    job.trainer(mlp().collect_params(), "sgd")
    next(iter(job.epochs(1, samples=SAMPLES, **{"global_batch": EACH, **options})))
    agreed = {name: value for name, value in membership.agreed.items() if name in WorkerHello.model_fields}
    where = {"cluster": "c", "private_ip": "10.0.0.1", "state_port": 9, "pid": 1, "layout": "one"}
    return WorkerHello(instance_id=instance, **where, **agreed)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 2}, "for 2 workers"),
        ({"changes": "epoch"}, "changes at ends of epochs"),
        ({"average_statistics": False}, "running statistics left to each"),
        ({"start": 0, "name": "warm-up"}, "phase warm-up"),
    ],
)
def test_workers_whose_scripts_say_different_things_do_not_train_together(options: dict[str, Any], named: str) -> None:
    assert find_disagreement(hello("i-1"), [hello("i-2")]) is None
    assert named in (find_disagreement(hello("i-1", **options), [hello("i-2")]) or "")
