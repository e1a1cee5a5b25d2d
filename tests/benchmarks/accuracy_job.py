"""The training loop of the accuracy benchmark: LeNet on digits, or a ResNet with BatchNorm on data like CIFAR-10.

At the end of an epoch for which a file `<gates>/stop-<epoch>` exists, the loop waits until that file is gone, so that a
membership change happens exactly there. Worker 0 writes its weights and its accuracy to files.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.examples.cifar10_data import load_binary
from dyntrain.training.examples.cifar10_net import resnet
from dyntrain.training.examples.digits import count_correct, lenet, load_digits
from dyntrain.training.job import ElasticJob
from dyntrain.training.sampling.batching import Batching, FixedGlobal, PerWorker
from dyntrain.training.worker.data.batches import ArrayBatches
from mxnet import autograd, gluon

WEIGHTS, RESULT = "weights.npz", "result.json"


def load(data: Path | None, smooth: bool) -> tuple[ArrayBatches, ArrayBatches, Any]:
    """Return (training, validation, net): of data in CIFAR-10's format in `data`, else of digits.

    `smooth` avoids max pooling, for jobs whose weights are compared. When two pixels are equal except for rounding, the
    order of a sum decides which of them gets the gradient, so the weights of two correct jobs would diverge.
    """
    if data is None:
        return *load_digits(None, 16), lenet(6, "tanh", gluon.nn.AvgPool2D) if smooth else lenet(6)
    return *load_binary(data), resnet(8, 8)


def batching_of(args: argparse.Namespace) -> Batching:
    if not args.per_worker:
        return FixedGlobal(args.batch)
    return PerWorker(args.batch) if args.compensated else PerWorker(args.batch, ramp=0, correct_momentum=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-worker", action="store_true")
    parser.add_argument("--compensated", action="store_true")
    parser.add_argument("--folder", type=Path, required=True, help="of the gates and of what is left behind")
    args = parser.parse_args()
    job = ElasticJob.join()
    train, validation, net = load(args.data, smooth=not args.per_worker)
    mx.random.seed(args.seed)
    net.initialize(mx.init.Xavier())
    net(train.rows(np.arange(1))[0])
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": args.rate, "momentum": 0.9})
    loss_function, right = gluon.loss.SoftmaxCrossEntropyLoss(), 0.0
    for epoch in job.epochs(args.epochs, samples=len(train), batching=batching_of(args), seed=args.seed):
        for data, label in epoch.batches(train):
            with autograd.record():
                loss = loss_function(net(data), label)
            loss.backward()
            trainer.step(len(label))
            epoch.record("loss", float(loss.sum().asscalar()), len(label))
        while (args.folder / f"stop-{epoch.number}").exists():
            time.sleep(0.02)
        if epoch.number == args.epochs - 1 and epoch.rank == 0:
            data, label = validation.rows(np.arange(len(validation)))
            right = count_correct(net(data), label) / len(label)
            trained = [param.data().asnumpy() for param in net.collect_params().values() if param.grad_req != "null"]
            np.savez(args.folder / WEIGHTS, *trained)
            (args.folder / RESULT).write_text(json.dumps({"accuracy": right}))


if __name__ == "__main__":
    main()
