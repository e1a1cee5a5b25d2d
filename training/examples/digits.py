"""Trains LeNet on scikit-learn's handwritten digits: a plain Gluon script that can train elastically.

    python -m dyntrain.training.examples.digits --epochs 10                 alone, on one worker
    (as a cluster's training command)                              elastic

The 1,797 images of 8 x 8 pixels are part of scikit-learn. The images are scaled up, so that an epoch takes seconds
instead of milliseconds.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine import STORES
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import ENDLESS
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.worker.data.batches import ArrayBatches
from mxnet import autograd, gluon

VALIDATION = 297  # number of images for validation, the last of the 1,797


def load_digits(path: Path | None, size: int) -> tuple[ArrayBatches, ArrayBatches]:
    """Load training and validation data: float32 images of shape (1, size, size), from 0 to 1, and int32 labels.

    The data is read from the .npz file `path`, or from scikit-learn if `path` is None.
    """
    if path is not None:
        with np.load(path, allow_pickle=False) as digits_file:
            images, labels = digits_file["images"], digits_file["labels"]
    else:
        from sklearn.datasets import load_digits as load

        images, labels = load(return_X_y=True)
    images = images.reshape(-1, 8, 8).astype(np.float32) / 16.0
    scale = max(1, size // 8)
    images = images.repeat(scale, axis=1).repeat(scale, axis=2)[:, None]
    labels = labels.astype(np.int32)
    return ArrayBatches(images[:-VALIDATION], labels[:-VALIDATION]), ArrayBatches(
        images[-VALIDATION:], labels[-VALIDATION:]
    )


def lenet(width: int, activation: str = "relu", pool: Any = gluon.nn.MaxPool2D) -> Any:
    """Return a network with LeNet-5's layers (LeCun et al. 1998), by default with ReLU and max pooling.

    The first layer has `width` filters.
    """
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(channels=width, kernel_size=5, activation=activation),
        pool(pool_size=2, strides=2),
        gluon.nn.Conv2D(channels=2 * width, kernel_size=5, activation=activation),
        pool(pool_size=2, strides=2),
        gluon.nn.Flatten(),
        gluon.nn.Dense(120, activation=activation),
        gluon.nn.Dense(84, activation=activation),
        gluon.nn.Dense(10),
    )
    return net


def count_correct(output: Any, label: Any) -> float:
    return float((output.argmax(axis=1).astype("int32") == label).sum().asscalar())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dyntrain.training.examples.digits",
        description="Train LeNet on handwritten digits, elastically or alone.",
    )
    parser.add_argument("--epochs", type=int, default=10, help="0: train until the job is ended")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=60,
        help="samples in a step: over all workers, or on each worker with --batching per-worker",
    )
    parser.add_argument(
        "--batching",
        choices=["fixed-global", "per-worker"],
        default="fixed-global",
        help="per-worker: batch and rate grow with workers",
    )
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument(
        "--size", type=int, default=32, help="pixels on a side after scaling up; a multiple of 8, at least 16"
    )
    parser.add_argument("--width", type=int, default=20, help="filters of the first layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="the .npz file that prepare-data wrote; default: scikit-learn's data")
    parser.add_argument("--kv-store", default="dist_sync", choices=STORES)
    parser.add_argument("--engine", choices=["pslite", "horovod"], help="default: the launch's engine, or pslite")
    args = parser.parse_args(argv)
    if args.size < 16 or args.size % 8:
        parser.error(f"--size {args.size}: must be a multiple of 8 and at least 16")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    mx.random.seed(args.seed)

    job = ElasticJob.join(args.kv_store, args.engine)
    train, validation = load_digits(args.data, args.size)
    net = lenet(args.width)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    net(mx.nd.zeros((1, 1, args.size, args.size)))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": args.lr, "momentum": args.momentum})

    batching = PerWorker(args.batch_size) if args.batching == "per-worker" else FixedGlobal(args.batch_size)
    for epoch in job.epochs(args.epochs or ENDLESS, samples=len(train), batching=batching, seed=args.seed):
        for data, label in epoch.batches(train):
            with autograd.record():
                output = net(data)
                loss = loss_function(output, label)
            loss.backward()
            trainer.step(len(label))
            epoch.record("train_accuracy", count_correct(output, label), len(label))
            epoch.record("loss", float(loss.sum().asscalar()), len(label))
        share = np.array(epoch.share(len(validation)))
        if len(share):
            data, label = validation.rows(share)
            epoch.record("val_accuracy", count_correct(net(data), label), len(label))
        logging.info("epoch %d done as worker %d of %d", epoch.number, epoch.rank, epoch.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
