"""A model-zoo network on random images for the benches: real state and gradients, as little computation as that
allows.
"""

from __future__ import annotations

import argparse

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.batches import ArrayBatches
from mxnet import autograd, gluon


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="resnet18_v1")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="steps in an epoch")
    parser.add_argument("--batch-size", type=int, default=6)
    args = parser.parse_args()

    job = ElasticJob.join()
    samples = args.steps * args.batch_size
    rng = np.random.default_rng(0)
    data = ArrayBatches(
        rng.normal(size=(samples, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, samples).astype(np.int32)
    )
    net = _lenet() if args.network == "lenet" else getattr(gluon.model_zoo.vision, args.network)(classes=10)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():  # compiled and allocated before the worker is admitted
        warm = loss_function(net(mx.nd.zeros((2, 3, 32, 32))), mx.nd.zeros((2,)))
    warm.backward()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9})
    for epoch in job.epochs(args.epochs, samples=samples, global_batch=args.batch_size):
        for x, y in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(x), y)
            loss.backward()
            trainer.step(args.batch_size)


def _lenet() -> gluon.nn.Block:
    """Gradients of 2.6 MB, for machines on which many workers share a core."""
    net = gluon.nn.HybridSequential()
    for channels in (20, 50):
        net.add(gluon.nn.Conv2D(channels, 5, activation="tanh"), gluon.nn.MaxPool2D(2, 2))
    net.add(gluon.nn.Dense(500, activation="tanh"), gluon.nn.Dense(10))
    return net


if __name__ == "__main__":
    main()
