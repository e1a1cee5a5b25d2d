"""What is made of trained weights between two loops over epochs, and the job keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, SAMPLES, Rows, labels, mlp, numbers, weights
from mxnet import autograd
from phased import taught, trained
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

X, Y = numbers(SAMPLES, 4), labels(3)
Make = Callable[[Any], dict[str, Any]]


def pseudo_labels(net: Any) -> dict[str, Any]:
    return {"y": net(mx.nd.array(X)).argmax(axis=1)}


def softened_in_parts(net: Any) -> dict[str, Any]:
    out = mx.nd.zeros((SAMPLES, 3))
    for i in range(0, SAMPLES, 8):
        out[i : i + 8] = mx.nd.softmax(net(mx.nd.array(X[i : i + 8])) / 2)
    return {"p": out}


def means_of_weights(net: Any) -> dict[str, Any]:
    return {"s": net[0].weight.data().mean(axis=0)}


def squares_of_gradients(net: Any) -> dict[str, Any]:
    """As much as each weight counts, by Fisher."""
    with autograd.record():
        loss = CROSS(net(mx.nd.array(X)), mx.nd.array(Y))
    loss.backward()
    return {"s": (net[0].weight.grad() ** 2).mean(axis=0)}


MAKES: list[Make] = [pseudo_labels, softened_in_parts, means_of_weights, squares_of_gradients]


def loss_of(net: Any, x: Any, y: Any, i: Any, kept: dict[str, Any]) -> Any:
    if "y" in kept:
        return CROSS(net(x), kept["y"].take(i))
    if "p" in kept:
        return -(kept["p"].take(i) * mx.nd.log_softmax(net(x))).sum(axis=1)
    return CROSS(net(x * (1 + kept["s"])), y)


def script(job: Any, make: Make, keeps: bool = True, hybrid: bool = False) -> list[Any]:
    net, student = mlp(), mlp(seed=2)
    if hybrid:
        net.hybridize()
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop")
    )
    kept = make(net)
    if keeps:
        kept = job.keep(kept)
    trainer = job.trainer(student.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y, i in epoch.batches(Rows(X, Y, np.arange(SAMPLES))):
            with autograd.record():
                loss = loss_of(student, x, y, i, kept)
            loss.backward()
            trainer.step(BATCH)
    return weights(student)


def changes() -> Conductor:
    """A worker comes to the second loop, which is begun with its eighth step."""
    return Conductor({0: 2, 10: 3, 14: 2}, [Death(12)], 2, loops=2)


@pytest.mark.parametrize("make", MAKES)
def test_t2_what_is_made_between_two_loops_and_kept_is_that_of_one_process(make: Make) -> None:
    all_close(changes().run(lambda job: script(job, make)), script(Plain(), make))


def grown(job: Any, teaches: bool = False, keeps: bool = False, hybrid: bool = False) -> list[Any]:
    """A second net begins with what the first one has learnt; or that is its teacher."""
    net, wide = mlp(), mlp(seed=2)
    if hybrid:
        wide.hybridize()
    if keeps:
        job.keep(wide)
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop")
    )
    for of, to in zip(net.collect_params().values(), wide.collect_params().values(), strict=True):
        to.set_data(0.5 * of.data())
    trainer = job.trainer((net if teaches else wide).collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(Rows(X, Y)):
            with autograd.record():
                loss = CROSS(wide(x), y) if not teaches else ((net(x) - wide(x)) ** 2).sum(axis=1)
            loss.backward()
            trainer.step(BATCH)
    return weights(net if teaches else wide)


def test_t2_a_net_that_is_trained_on_may_begin_with_an_earlier_ones_weights() -> None:
    all_close(changes().run(grown), grown(Plain()))


@pytest.mark.parametrize("hybrid", [False, True])
def test_t2_a_teacher_that_is_copied_between_two_loops_is_kept(hybrid: bool) -> None:
    all_close(changes().run(lambda job: grown(job, True, True, hybrid)), grown(Plain(), True, hybrid=hybrid))


def taught_by_a_copy(job: Any, keeps: bool) -> list[Any]:
    """As learning without forgetting has the net of the task before."""
    net = mlp()
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop")
    )
    old = copy.deepcopy(net)
    if keeps:
        job.keep(old)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(Rows(X, Y)):
            taught(net, old, trainer, x, y, BATCH)
    return weights(net)


def test_t2_a_deep_copy_of_the_net_is_kept() -> None:
    all_close(changes().run(lambda job: taught_by_a_copy(job, True)), taught_by_a_copy(Plain(), True))


def pruned(job: Any, keeps: bool, hybrid: bool) -> list[Any]:
    """Small weights of the first loop stay zero in the second one."""
    net = mlp()
    if hybrid:
        net.hybridize()
    trainer = job.trainer(net.collect_params(), "adam")
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"))
    masks = {name: p.data().abs() > 0.2 for name, p in net.collect_params().items()}
    if keeps:
        masks = job.keep(masks)
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(Rows(X, Y)):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            for name, p in net.collect_params().items():
                p.set_data(p.data() * masks[name])
    return weights(net)


@pytest.mark.parametrize("hybrid", [False, True])
def test_t2_masks_of_weights_are_kept(hybrid: bool) -> None:
    ran = changes().run(lambda job: pruned(job, True, hybrid))
    assert any((each == 0).any() for each in ran[0])
    all_close(ran, pruned(Plain(), True, hybrid))
