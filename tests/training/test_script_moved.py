"""Weights that a script writes in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

Between = Callable[[Any], None]  # of the net, between backward and step


def script(job: Any, between: Between, after: Between = lambda net: None) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            between(net)
            trainer.step(BATCH)
            after(net)
    return weights(net)


norms: list[Any] = []


def decays(net: Any) -> None:
    for p in net.collect_params().values():
        p.data()[:] *= 0.99


def logs(net: Any) -> None:
    norms.append([p.grad().norm().asscalar() for p in net.collect_params().values()])


def clips_what_is_summed(net: Any) -> None:
    for p in net.collect_params().values():
        norms.append(p.grad().norm().asscalar())
        p.data()[:] = p.data().clip(-0.4, 0.4)


@pytest.mark.parametrize(
    ("between", "after"),
    [(decays, logs), (logs, decays), (decays, clips_what_is_summed), (logs, clips_what_is_summed)],
)
def test_t2_weights_that_are_written_without_those_gradients_train_as_in_one_process(
    between: Between, after: Between
) -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(8, 0)], 1)
    all_close(conductor.run(lambda job: script(job, between, after)), script(Plain(), between, after))


def logs_the_other(job: Any) -> list[Any]:
    """A GAN's: the first net's gradients are read, they have reached the second one too, whose weights are clipped."""
    net, critic = mlp(4), mlp(1, seed=4)
    trainers = [job.trainer(each.collect_params(), "sgd", {"learning_rate": 0.1}) for each in (net, critic)]
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, _ in epoch.batches(data()):
            for trainer, fake in ((trainers[0], True), (trainers[1], False)):
                with autograd.record():
                    loss = critic(net(x) if fake else x) * (1 if fake else -1)
                loss.backward()
                if fake:
                    norms.append([p.grad().norm().asscalar() for p in net.collect_params().values()])
                trainer.step(BATCH)
                for p in critic.collect_params().values() if fake else ():
                    p.data()[:] = p.data().clip(-0.3, 0.3)
    return weights(net, critic)


def test_t2_gradients_of_one_net_are_no_reason_to_refuse_a_clip_of_another() -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(logs_the_other), logs_the_other(Plain()))


Follow = Callable[[Any, Any], None]  # a parameter of the teacher, and what it becomes


def by_set_data(p: Any, becomes: Any) -> None:
    p.set_data(becomes)


def in_its_place(p: Any, becomes: Any) -> None:
    p.data()[:] = becomes


def on_every_device(p: Any, becomes: Any) -> None:
    for weight in p.list_data():
        becomes.copyto(weight)


def step_by_step(p: Any, becomes: Any) -> None:
    weight = p.data()
    weight += becomes - weight


FOLLOWS = (by_set_data, in_its_place, on_every_device, step_by_step)


def teacher(job: Any, keeps: bool, follow: Follow = by_set_data) -> list[Any]:
    """A mean teacher, whose weights follow the student's, and whose answers the student learns from."""
    net, mean = mlp(), mlp(seed=3)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    if keeps:
        job.keep(mean)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y) + ((net(x) - mean(x).detach()) ** 2).mean(axis=1)
            loss.backward()
            trainer.step(BATCH)
            for p, followed in zip(mean.collect_params().values(), net.collect_params().values(), strict=True):
                follow(p, 0.9 * p.data() + 0.1 * followed.data())
    return weights(net, mean)


@pytest.mark.parametrize("follow", FOLLOWS)
def test_t2_a_teacher_that_the_job_keeps_is_that_of_one_process(follow: Follow) -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(8, 0)], 1)
    all_close(conductor.run(lambda job: teacher(job, True, follow)), teacher(Plain(), True, follow))
