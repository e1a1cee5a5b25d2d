"""A model-zoo network on random images for the benchmarks: real state and gradients, with little computation."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.batches import ArrayBatches
from figures import peak_mb
from mxnet import autograd, gluon


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="resnet18_v1")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="steps in an epoch")
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--alone", action="store_true", help="without the job: says what MXNet itself takes")
    args = parser.parse_args()

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
    if args.alone:
        _alone(net, loss_function, data, args.steps, args.batch_size)
        return
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9})
    for epoch in job.epochs(args.epochs, samples=samples, global_batch=args.batch_size):
        for x, y in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(x), y)
            loss.backward()
            trainer.step(args.batch_size)


def _alone(net: gluon.Block, loss_function: gluon.loss.Loss, data: ArrayBatches, steps: int, batch: int) -> None:
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9}, kvstore=None)
    began = since = 0.0
    for step in range(steps):
        if step == steps // 4:  # from here on everything is compiled
            mx.nd.waitall()
            began, since = time.process_time(), time.monotonic()
        x, y = (mx.nd.array(each) for each in data.rows(np.arange(step * batch, (step + 1) * batch)))
        with autograd.record():
            loss = loss_function(net(x), y)
        loss.backward()
        trainer.step(batch)
        mx.nd.waitall()
    measured = steps - steps // 4
    results = {
        "peak_mb": peak_mb(os.getpid()),
        "processor": (time.process_time() - began) / measured,
        "seconds": (time.monotonic() - since) / measured,
        "shapes": [param.shape for param in net.collect_params().values() if param.grad_req != "null"],
    }
    sys.stdout.write(json.dumps(results))


def _lenet() -> gluon.nn.Block:
    """A network with gradients of 2.6 MB, for machines on which many workers share a core."""
    net = gluon.nn.HybridSequential()
    for channels in (20, 50):
        net.add(gluon.nn.Conv2D(channels, 5, activation="tanh"), gluon.nn.MaxPool2D(2, 2))
    net.add(gluon.nn.Dense(500, activation="tanh"), gluon.nn.Dense(10))
    return net


if __name__ == "__main__":
    main()
