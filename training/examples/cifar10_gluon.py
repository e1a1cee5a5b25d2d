"""Trains a ResNet on CIFAR-10's binary batches with Gluon, in an elastic job or as a single process.

python -m dyntrain.training.examples.cifar10_gluon --data cifar-10-batches-bin --layers 20
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine import STORES
from dyntrain.training.examples.cifar10_data import SIDE, load_binary
from dyntrain.training.examples.cifar10_net import resnet
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.contexts import choose_contexts, spread
from mxnet import autograd, gluon


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dyntrain.training.examples.cifar10_gluon", description="Train a ResNet on CIFAR-10 with Gluon."
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of data_batch_*.bin and test_batch.bin")
    parser.add_argument("--layers", type=int, default=20, help="6n + 2")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--epochs", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=128, help="samples in a step over all workers")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument(
        "--gpus", help="numbers, as in 0,1; default: as many GPUs as DEEPLEARNING_WORKER_GPU_COUNT says, or the CPU"
    )
    parser.add_argument("--kv-store", default="dist_sync", choices=STORES)
    parser.add_argument("--engine", choices=["pslite", "horovod"], help="default: the launch's engine, or pslite")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    contexts = choose_contexts(args.gpus)
    train, validation = load_binary(args.data)
    job = ElasticJob.join(args.kv_store, args.engine)
    mx.random.seed(1)
    net = resnet(args.layers, args.width)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2), ctx=contexts)
    net.hybridize(static_alloc=True)
    net(mx.nd.zeros((1, 3, SIDE, SIDE), ctx=contexts[0]))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    optimizer_options = {"learning_rate": args.lr, "momentum": 0.9, "wd": 1e-4}
    trainer = job.trainer(net.collect_params(), "sgd", optimizer_options)
    for epoch in job.epochs(args.epochs, samples=len(train), global_batch=args.batch_size):
        for batch in epoch.batches(train):
            with autograd.record():
                losses = [loss_function(net(data), label) for data, label in spread(batch, contexts)]
            autograd.backward(losses)
            trainer.step(args.batch_size)
            epoch.record("loss", sum(float(loss.sum().asscalar()) for loss in losses), len(batch[0]))
        share = epoch.share(len(validation))
        correct_count = 0
        for first_row in range(share.start, share.stop, args.batch_size):
            row_numbers = np.arange(first_row, min(share.stop, first_row + args.batch_size))
            for data, label in spread(validation.rows(row_numbers), contexts):
                correct_count += int((net(data).argmax(axis=1).astype("int32") == label).sum().asscalar())
        epoch.record("val_accuracy", correct_count, len(share))
        logging.info(
            "epoch %d: %d of %d validation images correct, as worker %d of %d",
            epoch.number,
            correct_count,
            len(share),
            epoch.rank,
            epoch.workers,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
