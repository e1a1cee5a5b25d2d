"""A script that differentiates in threads of its own, as GluonNLP's `Parallel`: of what is done there nothing is looked
at, so a mean would be taken for a sum, and nothing would say so.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from conducted import Conductor, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, SAMPLES, data, mlp, weights
from mxnet import autograd, gluon
from test_script_idioms import all_close
from told import tells

import mxnet as mx  # isort: skip

DEVICES = [mx.cpu(0), mx.cpu(1)]
Differentiates = Callable[[Any, Any, Any], None]


def of_mean(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        loss = CROSS(net(x), y).mean()
    loss.backward()


def of_each_sample(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        losses = [CROSS(net(x), y)]
    autograd.backward(losses)


def train(job: Any, differentiate: Differentiates, pool: Any, nets: list[Any], devices: Any = DEVICES) -> list[Any]:
    nets.append(net := mlp())
    net.collect_params().reset_ctx(devices)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            split = (gluon.utils.split_and_load(each, devices, even_split=False) for each in (x, y))
            for done in pool.map(lambda part: differentiate(net, *part), zip(*split, strict=True)):
                assert done is None
            trainer.step(BATCH)
    return weights(net)


def test_t2_a_thread_that_differentiates_is_told_of() -> None:
    with ThreadPoolExecutor(2, "device") as pool, tells("DT117", r"device_\d"):
        train(ElasticJob.join(), of_each_sample, pool, [])


def test_t2_what_the_sentence_says_is_right() -> None:
    expected = train(Plain(), of_each_sample, OnThisThread, [], DEVICES[:1])
    all_close(Conductor({0: 3}).run(lambda job: train(job, of_each_sample, OnThisThread, [])), expected)


class OnThisThread:
    map = staticmethod(map)


class Recomputes(autograd.Function):
    """A layer whose forward pass comes again in the backward pass, which MXNet calls on a thread of its own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self._layer = layer

    def forward(self, x: Any) -> Any:
        self._x = x
        return self._layer(x)

    def backward(self, dy: Any) -> Any:
        x = self._x.copy()
        x.attach_grad()
        with autograd.record():
            y = self._layer(x)
        y.backward(dy)
        return x.grad


def test_a_thread_of_mxnets_and_one_with_a_net_of_its_own_are_none_of_these() -> None:
    net, other, layer, job = mlp(), mlp(), gluon.nn.Dense(4, in_units=4), ElasticJob.join()
    layer.initialize()
    trainer = job.trainer([*net.collect_params().values(), *layer.collect_params().values()], "sgd", loss="sum")
    begun, steps = [weights(net), weights(other)], 0
    with ThreadPoolExecutor(1) as pool:
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                pool.submit(of_mean, other, x, y).result()
                x.attach_grad()
                with autograd.record():
                    loss = CROSS(net(Recomputes(layer)(x)), y)
                loss.backward()
                mx.nd.waitall()
                trainer.step(BATCH)
                steps += 1
    assert steps == -(-SAMPLES // BATCH)
    assert not np.array_equal(weights(net)[0], begun[0][0])
    np.testing.assert_array_equal(weights(other)[0], begun[1][0])
