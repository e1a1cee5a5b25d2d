"""Schedulers that a script sets in a later epoch, and the reading of a rate by one worker alone."""

from __future__ import annotations

import threading
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, SAMPLES, data, mlp, train, weights
from mxnet import autograd
from test_script_idioms import all_close

EPOCHS, FINE = 4, 1  # from this epoch on with another scheduler


def first() -> Any:
    return mx.lr_scheduler.FactorScheduler(2, 0.8, base_lr=0.2)


def second() -> Any:
    return mx.lr_scheduler.PolyScheduler(16, 0.2, pwr=1)


def script(job: Any, begins: Any, from_then_on: bool) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"lr_scheduler": begins, "momentum": 0.9})

    def replaces(epoch: Any) -> None:
        if (epoch >= FINE) if from_then_on else (epoch == FINE):
            trainer._optimizer.lr_scheduler = second()

    train(job, net, trainer, begins=replaces, epochs=EPOCHS)
    return weights(net)


def restarted(step: int, begins: Any, from_then_on: bool) -> list[Any]:
    """All workers begin anew, with what was safe before this step."""
    before = Conductor({0: 2, step: 3}, segment_steps=1)
    all_close(before.run(lambda job: script(job, begins(), True)), script(Plain(), begins(), True))
    block = next(block for at, block in before.blocks.items() if at.step == step)
    return Conductor({0: 2}, segment_steps=3, start=block).run(lambda job: script(job, begins(), from_then_on))


@pytest.mark.parametrize("begins", [first, lambda: None], ids=["another", "none"])
@pytest.mark.parametrize("step", [8, 10], ids=["where an epoch begins", "within one"])
def test_t5_who_begins_after_a_scheduler_was_replaced_is_told_so(begins: Any, step: int) -> None:
    with pytest.raises(ValueError, match=r"had PolyScheduler at this step, but has (Factor|no s).*if epoch >= 3"):
        restarted(step, begins, from_then_on=False)


@pytest.mark.parametrize("begins", [first, lambda: None], ids=["another", "none"])
@pytest.mark.parametrize("step", [3, 4, 5, 8, 10])
def test_t5_a_scheduler_that_is_set_in_each_epoch_from_then_on_goes_on_after_a_restart(begins: Any, step: int) -> None:
    all_close(restarted(step, begins, from_then_on=True), script(Plain(), begins(), True))


@pytest.mark.parametrize("step", [4, 5])
def test_t5_who_joins_in_the_epoch_in_which_it_is_replaced_has_it_too(step: int) -> None:
    conductor = Conductor({0: 2, step: 3}, [Death(6, 1)], segment_steps=1)
    results = conductor.run(lambda job: script(job, first(), from_then_on=False))
    all_close(results, script(Plain(), first(), False))


class Sequential(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """GluonCV's: keeps what it answered in attributes that it makes when it is asked."""

    def __call__(self, num_update: int) -> float:
        self.last_update, self.learning_rate = num_update, 0.2 / (1 + num_update)
        return self.learning_rate


class Locked(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__(0.2)
        self.lock = threading.Lock()

    def __call__(self, num_update: int) -> float:
        return 0.2 / (1 + num_update)


def prints(job: Any, scheduler: Any) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"lr_scheduler": scheduler()})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if job.writes:
                read_rates.append(trainer.learning_rate)
            trainer.step(BATCH)
    return weights(net)


read_rates: list[float] = []


@pytest.mark.parametrize("scheduler", [Sequential, Locked])
def test_t2_a_rate_that_one_worker_prints_is_no_reason_to_end_the_job(scheduler: Any) -> None:
    class Alone(Plain):
        writes = True

    read_rates.clear()
    expected = prints(Alone(), scheduler)
    rates = list(read_rates)
    read_rates.clear()
    all_close(Conductor({0: 2}).run(lambda job: prints(job, scheduler)), expected)
    assert read_rates == rates


class Remembering(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """Writes down what it answered, for a figure."""

    def __init__(self) -> None:
        super().__init__(0.2)
        self.answers: list[float] = []

    def __call__(self, num_update: int) -> float:
        self.answers.append(0.2 / (1 + num_update))
        return self.answers[-1]


class Counting(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """Lowers the rate each time that it is asked."""

    def __call__(self, num_update: int) -> float:
        self.base_lr *= 0.9
        return float(self.base_lr)


@pytest.mark.parametrize(
    ("scheduler", "times"),
    [(Counting, 1), (Remembering, 0), (Sequential, 0), (Locked, 0), (first, 0)],
    ids=["counts", "remembers", "keeps", "locks", "follows"],
)
def test_reading_the_rate_of_a_scheduler_that_counts_its_calls_is_told_of_once(
    scheduler: Any, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In one process each reading lowers the rate."""
    job = ElasticJob.join()
    trainer = job.trainer((net := mlp()).collect_params(), "sgd", {"lr_scheduler": scheduler()})
    train(job, net, trainer, after=lambda _: read_rates.append(trainer.learning_rate))
    assert sum("another rate each time it is read" in record.getMessage() for record in caplog.records) == times
