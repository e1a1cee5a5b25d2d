"""Probed scripts in which each share would have another number of something, or would have it later."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.sampling.sharding import epoch_order
from mxnet import autograd, gluon, nd
from probed_bed import (
    BATCH,
    DIFFERS,
    SAMPLES,
    SILENCED,
    X,
    Y,
    cross_entropy,
    mlp,
    script,
    scripts,
    squares,
    train,
    weights_of_classes,
)


@script(DIFFERS)
def classes_counted_in_a_second_loop() -> None:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for phase in ("plain", "weighed"):
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, name=phase):
            for x, y in epoch.batches(gluon.data.ArrayDataset(X, Y)):
                with autograd.record():
                    losses = cross_entropy(net(x), y)
                    loss = losses if phase == "plain" else losses * weights_of_classes(y)
                loss.backward()
                trainer.step(BATCH)


@script(DIFFERS)
def classes_that_few_samples_share() -> None:
    """Center loss for faces: of many classes the first twelve samples have each another one."""
    order, y = epoch_order(SAMPLES, 0, 0), Y.copy()
    y[order] = np.arange(SAMPLES) % 12
    dataset = gluon.data.ArrayDataset(X, y)

    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        counts = np.bincount(y.asnumpy().astype(int), minlength=12)
        return cross_entropy(net(x), y) * nd.array(1 / np.maximum(counts, 1)).take(y)

    train(weighed, mlp(outputs=12), dataset=dataset)


@script(DIFFERS)
def weights_divided_by_their_mean() -> None:
    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        with autograd.pause():
            weights = x[:, 0].abs() / x[:, 0].abs().mean()
        return cross_entropy(net(x), y) * weights

    train(weighed)


@script(DIFFERS)
def mean_over_picked_places() -> None:
    def of_positives(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return cross_entropy(net(x), y).take(nd.array(np.flatnonzero(y.asnumpy() > 0))).mean()

    train(of_positives, loss="mean", step_of=lambda *_: 1)


@script(DIFFERS)
def outputs_with_the_time_first() -> None:
    """Gluon's losses take axis 0 for the batch's."""

    def of_steps(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return squares(net(x).T.expand_dims(2), nd.zeros((4, len(x), 1)))

    train(of_steps, mlp(outputs=4))


@script(DIFFERS)
def target_of_the_whole_batch() -> None:
    """As in deep embedded clustering: it is sharpened by what all samples of a cluster come to."""

    def divergence(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        q = nd.softmax(net(x))
        with autograd.pause():
            p = q**2 / q.sum(axis=0)
            p = p / p.sum(axis=1, keepdims=True)
        return (p * (p.log() - q.log())).sum(axis=1)

    train(divergence)


@script(DIFFERS)
def divided_within_a_product() -> None:
    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return nd.dot(nd.ones((1, len(x))) / float(len(x)) ** 0.5, cross_entropy(net(x), y).expand_dims(1)).sum()

    train(weighed)


@script(DIFFERS)
def norm_of_the_scripts_own() -> None:
    def normed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        out = net(x)
        return cross_entropy((out - out.mean(axis=0, keepdims=True)) * 3, y)

    train(normed)


@script(DIFFERS)
def a_count_below_many_norms() -> None:
    """With the statistics that a norm begins with, such a net's outputs grow with each layer, until they are no
    numbers.
    """
    net = mlp(*[Residual() for _ in range(40)])

    def divided(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return nd.dot((y > 0).expand_dims(0) / (y > 0).sum(), cross_entropy(net(x), y).expand_dims(1)).sum()

    train(divided, net, loss="own", step_of=lambda *_: 1)


class Residual(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.norm = gluon.nn.BatchNorm(in_channels=16)
            self.layer = gluon.nn.Dense(16, in_units=16, weight_initializer=mx.init.Normal(3.0))

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        return x + self.layer(self.norm(x) * 20)


@script(DIFFERS)
def classes_counted_beside_noise() -> None:
    def noisy(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return cross_entropy(net(x + nd.random.normal(shape=x.shape)), y) * weights_of_classes(y)

    train(noisy)


@script(DIFFERS)
def samples_beside_those_of_the_batch() -> None:
    rehearsed, labels = nd.array(X[:5]), nd.array(Y[:5])
    train(lambda net, epoch, x, y: cross_entropy(net(x), y).sum() + cross_entropy(net(rehearsed), labels).sum())


scripts(
    DIFFERS,
    classes_counted_in_the_batch=lambda: train(
        lambda net, epoch, x, y: cross_entropy(net(x), y) * weights_of_classes(y)
    ),
    mean_of_the_largest=lambda: train(
        lambda net, epoch, x, y: cross_entropy(net(x), y).topk(k=3, ret_typ="value").mean(),
        loss="mean",
        step_of=lambda *_: 1,
    ),
)
scripts(
    SILENCED,
    accepted=lambda: train(lambda net, epoch, x, y: cross_entropy(net(x), y) * weights_of_classes(y), probe=False),
)
