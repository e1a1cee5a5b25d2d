"""A model-zoo network on random images for the benches: real state and gradients, as little computation as that allows."""

from __future__ import annotations

import argparse

import numpy as np

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from training.batches import ArrayBatches
from training.job import ElasticJob


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
    data = ArrayBatches(rng.normal(size=(samples, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, samples).astype(np.int32))
    net = getattr(gluon.model_zoo.vision, args.network)(classes=10)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():  # compiled and allocated before the worker is admitted
        warm = loss_function(net(mx.nd.zeros((2, 3, 32, 32))), mx.nd.zeros((2,)))
    warm.backward()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9}, kvstore=job.kvstore)
    for epoch in job.epochs(args.epochs, net=net, trainer=trainer, samples=samples, global_batch=args.batch_size):
        for x, y in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(x), y)
            loss.backward()
            epoch.step(trainer)


if __name__ == "__main__":
    main()
