"""What scripts have in common whose first batch is probed: data, a net, a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from mxnet import autograd, gluon, nd

SAMPLES, BATCH, INPUTS, CLASSES = 32, 16, 6, 3
RANDOM = np.random.RandomState(3)
X = RANDOM.randn(SAMPLES, INPUTS).astype("float32")
Y = RANDOM.randint(0, CLASSES, SAMPLES).astype("float32")
cross_entropy, squares = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L2Loss()
Scripted = Callable[[], Any]
DIFFERS, ADDS_UP, DRAWS, UNTRIED, SILENCED = "differs", "adds up", "draws", "untried", "silenced"
SCRIPTS: dict[str, tuple[Scripted, str, str]] = {}  # and what their trials come to: by which function one draws, or why


def script(outcome: str, of: str = "") -> Callable[[Scripted], Scripted]:
    def add(run: Scripted) -> Scripted:
        SCRIPTS[run.__name__] = run, outcome, of
        return run

    return add


def scripts(outcome: str, of: str = "", **runs: Scripted) -> None:
    SCRIPTS.update({name: (run, outcome, of) for name, run in runs.items()})


def mlp(*layers: gluon.nn.HybridBlock, outputs: int = CLASSES) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, in_units=INPUTS, activation="tanh"), *layers, gluon.nn.Dense(outputs, in_units=16))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def train(
    loss_of: Callable[..., Any],
    net: Any = None,
    loss: Any = None,
    step_of: Callable[..., Any] = lambda *_: BATCH,
    dataset: Any = None,
    loader: Any = None,
    count: int = 1,
    optimizer: tuple[str, float] = ("sgd", 0.1),
    **epochs: Any,
) -> None:
    """`loss_of(net, epoch, x, y)`; `step_of(epoch, y)`: for step(); `count`: of epochs; `optimizer`: and its rate."""
    dataset = gluon.data.ArrayDataset(X, Y) if dataset is None else dataset
    net = net or mlp()
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), optimizer[0], {"learning_rate": optimizer[1]}, loss=loss)
    batches = job.loader(dataset, BATCH, **(loader or {}))
    for epoch in job.epochs(count, **epochs):
        for x, y in batches:
            x, y = x.as_in_context(mx.cpu()), y.as_in_context(mx.cpu())
            with autograd.record():
                value = loss_of(net, epoch, x, y)
            value.backward()
            trainer.step(step_of(epoch, y))


def plain(net: Any, epoch: Any, x: Any, y: Any) -> Any:
    return cross_entropy(net(x), y)


def weights_of_classes(y: Any) -> Any:
    counts = np.bincount(y.asnumpy().astype(int), minlength=CLASSES)
    return nd.array(1 / np.maximum(counts, 1)).take(y)
