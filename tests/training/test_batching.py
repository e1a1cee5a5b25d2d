"""Per-worker batches: samples are still taken once each, the rate never jumps, and momentum keeps its meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxnet as mx  # isort: skip
from dyntrain.training.examples.digits import lenet, load_digits
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker, Ramp, WorkerRate
from dyntrain.training.sampling.sharding import after_step, epoch_order, share
from dyntrain.training.worker.loop.schedule import worker_rate
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import autograd, gluon

crowds = st.integers(1, 9)


@given(samples=st.integers(1, 300), batch=st.integers(1, 40), data=st.data())
def test_batching_every_sample_is_taken_once_however_the_number_of_workers_changes(
    samples: int, batch: int, data: st.DataObject
) -> None:
    batching, order, position, taken = (
        PerWorker(batch),
        epoch_order(samples, 1, 0),
        Position(epoch=0, offset=0, step=0),
        [],
    )
    while position.epoch == 0:
        workers = data.draw(crowds, label="workers of this step")
        shares = [share(order, batching.over(workers), position.offset, number, workers) for number in range(workers)]
        assert max(map(len, shares)) <= batch, "no worker gets more than the batch that its memory was sized for"
        taken += [int(index) for part in shares for index in part]
        position = after_step(position, samples, batching.over(workers))
    assert sorted(taken) == list(range(samples))


@given(crowds, crowds, st.integers(1, 512))
def test_batching_the_rate_follows_the_batch_and_with_a_fixed_one_nothing_does(
    workers: int, base: int, batch: int
) -> None:
    growing, fixed = PerWorker(batch, base), FixedGlobal(batch)
    assert growing.rate_factor(workers) == pytest.approx(growing.over(workers) / growing.over(base))
    assert fixed.over(workers) == fixed.over(base) == batch


@given(
    st.lists(st.tuples(crowds, st.integers(0, 5000)), min_size=1, max_size=8), st.integers(0, 4000), st.integers(1, 64)
)
def test_batching_the_rate_goes_from_where_it_is_and_arrives(
    changes: list[tuple[int, int]], length: int, step: int
) -> None:
    """Changes may come in the middle of a ramp. A jump in the rate is what the ramp is there to prevent."""
    ramp, at = Ramp(), 0
    for workers, gap in changes:
        at += gap
        before = ramp.factor(at)
        ramp = ramp.towards(float(workers), at, length)
        if length:
            assert ramp.factor(at) == pytest.approx(before)
            assert abs(ramp.factor(at + step) - before) <= abs(ramp.goal - ramp.start) * step / length + 1e-9
    assert ramp.factor(at + length) == changes[-1][0]


def sgd(rate: float, optimizer: str = "sgd", **more: Any) -> tuple[Any, Any, TrainingState]:
    net = gluon.nn.Dense(1, use_bias=False)
    net.initialize(mx.init.Zero())
    net(mx.nd.ones((1, 3)))
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, {"learning_rate": rate, "momentum": 0.9, **more}, kvstore=None
    )
    return net, trainer, TrainingState(net, trainer)


def push(net: Any, trainer: Any, gradient: Any) -> None:
    with autograd.record():
        loss = (net(mx.nd.array([gradient]))).sum()  # its gradient is the input itself
    loss.backward()
    trainer.step(1)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.25, 4.0), min_size=2, max_size=12), st.integers(0, 99), st.sampled_from(["sgd"]))
def test_batching_scaled_momentum_is_the_walk_of_a_rate_outside_the_buffer(
    factors: list[float], seed: int, optimizer: str
) -> None:
    """MXNet's SGD with its buffer scaled, against u = m u + g, w -= rate u, step by step in NumPy."""
    net, trainer, state = sgd(0.1, optimizer)
    gradients = np.random.default_rng(seed).normal(size=(len(factors), 3)).astype(np.float32)
    outside, weight = np.zeros(3), np.zeros(3)
    for i, (factor, gradient) in enumerate(zip(factors, gradients, strict=True)):
        if i:
            state.optimizer_states.scale_momentum(factor / factors[i - 1])
        trainer.set_learning_rate(0.1 * factor)
        push(net, trainer, gradient)
        outside = 0.9 * outside + gradient
        weight = weight - 0.1 * factor * outside
    assert np.allclose(net.weight.data().asnumpy()[0], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "nag"])
def test_batching_after_the_ramp_the_velocity_is_that_of_a_run_that_began_at_the_new_rate(optimizer: str) -> None:
    """In the steady state of a constant gradient. Unscaled, it would lag behind for tens of steps."""
    net, trainer, state = sgd(0.1, optimizer)
    rate = WorkerRate(1)
    other_net, other, other_state = sgd(0.4, optimizer)
    for step in range(300):
        if step == 150:
            rate = rate.with_goal(4.0, 40)
        before, rate = rate, rate.after(1)
        state.optimizer_states.scale_momentum(rate.factor / before.factor)
        trainer.set_learning_rate(0.1 * rate.factor)
        push(net, trainer, [1.0, 2.0, 3.0])
        push(other_net, other, [1.0, 2.0, 3.0])
        if step == 191:
            mine, theirs = (each.trainers[0]._updaters[0].states[0].asnumpy() for each in (state, other_state))
            assert np.allclose(mine, theirs, rtol=1e-3)
    assert trainer.learning_rate == pytest.approx(0.4)


def test_batching_an_optimizer_that_applies_the_rate_outside_its_buffers_is_left_alone() -> None:
    net = gluon.nn.Dense(1)
    net.initialize()
    net(mx.nd.ones((1, 3)))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1}, kvstore=None)
    state = TrainingState(net, trainer)
    push(net, trainer, [1.0, 2.0, 3.0])
    before = [leaf.asnumpy() for leaf in trainer._updaters[0].states[0]]
    state.optimizer_states.scale_momentum(3.0)
    assert all(np.array_equal(a, b.asnumpy()) for a, b in zip(before, trainer._updaters[0].states[0], strict=True))


@given(st.lists(st.integers(1, 900), min_size=1, max_size=40), st.integers(1, 64))
def test_batching_a_schedule_is_where_the_samples_are_however_many_updates_they_took(
    steps: list[int], unit: int
) -> None:
    """Counted in updates, a job with four workers would reach the end of its schedule with a quarter of the epochs
    done.
    """

    by_many, at_once = WorkerRate(unit), WorkerRate(unit).after(sum(steps))
    for samples in steps:
        by_many = by_many.after(samples)
    assert by_many == at_once
    assert at_once.updates == math.ceil(sum(steps) / unit)


def test_batching_a_joiner_receives_the_ramp_and_takes_the_rate_in_its_middle() -> None:
    parts = []
    for _ in range(2):
        net, trainer, _ = sgd(0.1)
        trainer._optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(100, 0.5, base_lr=0.1)
        trainer.worker_rate = WorkerRate(10)
        parts.append((trainer, TrainingState(net, trainer)))
    (old, state), (new, joiner) = parts
    old.worker_rate = old.worker_rate.after(500).with_goal(3.0, 1000).after(500)
    joiner.install(state.pack(Position(epoch=1, offset=0, step=9)))
    assert new.worker_rate == old.worker_rate
    assert new.worker_rate.factor == pytest.approx(2.0), "half of the way from 1 to 3"
    new.worker_rate = new.worker_rate.after(550)
    with worker_rate(new):
        assert new.learning_rate == pytest.approx(0.1 * 0.5 * 3.0), (
            "the schedule of 100 updates of 10 samples, and the ramp's end"
        )


# ---- whole jobs in this process


@dataclass(frozen=True)
class Crowd(PerWorker):
    """One process that does the work of so many workers: without BatchNorm the sum of their gradients is the gradient
    of all their samples.
    """

    workers: list[int] = field(default_factory=lambda: [1])

    def over(self, workers: int) -> int:
        return self.batch * self.workers[0]

    def rate_factor(self, workers: int) -> float:
        return self.workers[0] / self.base_workers


def train_digits(seed: int, rate: float, ramp: int | None, corrected: bool, epochs: int = 8) -> list[float]:
    """The mean loss of each epoch of LeNet, with one worker until epoch 2 and four from then on."""
    data, _ = load_digits(None, 16)
    mx.random.seed(seed)
    job, net = ElasticJob.join(), lenet(4)
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 1, 16, 16)))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    batching = Crowd(32, ramp=ramp, correct_momentum=corrected)
    losses = []
    for epoch in job.epochs(epochs, samples=len(data), batching=batching, seed=seed):
        total = 0.0
        for images, labels in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(images), labels)
            loss.backward()
            trainer.step(len(labels))
            total += float(loss.sum().asscalar())
        losses.append(total / len(data))
        if epoch.number == 1:
            batching.workers[0] = 4
    return losses


def test_t16_scaling_to_four_workers_with_compensation_does_not_diverge() -> None:
    losses = train_digits(seed=1, rate=0.05, ramp=None, corrected=True)
    assert losses[-1] < losses[1], "it goes on learning after the change"
    assert max(losses[2:]) < 2.3, "never as bad as guessing"


def test_batching_a_job_takes_exactly_one_word_on_its_batch() -> None:
    net = gluon.nn.Dense(1, in_units=3)
    net.initialize()
    job = ElasticJob.join()
    job.trainer(net.collect_params(), "sgd")
    messages = []
    calls: list[Callable[[], Any]] = [
        lambda: job.epochs(1, samples=5),
        lambda: job.epochs(1, samples=5, global_batch=2, batching=FixedGlobal(2)),
        lambda: job.epochs(1, samples=5, global_batch=0),
        lambda: PerWorker(4, ramp=-1),
        lambda: PerWorker(4, base_workers=0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"batch|ramp|base_workers") as caught:
            next(iter(call()))
        messages.append(str(caught.value))
    assert len(messages) == len(calls)
