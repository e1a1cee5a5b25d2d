"""A training script of a second's start-up for tests: a small net on made-up data, a step as long as a test wants it."""

from __future__ import annotations

import argparse
import hashlib
import logging
import time
from pathlib import Path

import numpy as np

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from training.batches import ArrayBatches
from training.batching import FixedGlobal, PerWorker
from training.job import ElasticJob


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--samples", type=int, default=97)  # odd on purpose: the last batch is short
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--per-worker", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--norm", action="store_true", help="with BatchNorm; prints the running statistics at the end of each epoch")
    parser.add_argument("--hold", type=Path, help="while this file is there, a step takes --step-seconds; then the job runs to its end")
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--weights", help="where to save the final parameters")
    parser.add_argument("--fail-at", type=int, help="raise at this step, in the worker that has rank 1")
    args = parser.parse_args()

    job = ElasticJob.join()
    rng = np.random.default_rng(7)
    data = ArrayBatches(rng.normal(size=(args.samples, 6)).astype(np.float32), rng.integers(0, 3, args.samples).astype(np.int32))
    mx.random.seed(1)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dropout(args.dropout), gluon.nn.Dense(3))
    if args.norm:
        net.add(gluon.nn.BatchNorm())
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 6)))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=job.kvstore)
    batching = PerWorker(args.batch_size) if args.per_worker else FixedGlobal(args.batch_size)
    for epoch in job.epochs(args.epochs, net=net, trainer=trainer, samples=len(data), batching=batching, seed=3):
        for x, y in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(x), y)
            loss.backward()
            epoch.step(trainer)
            epoch.record("loss", float(loss.sum().asscalar()), len(y))
            if args.hold and args.hold.exists():
                time.sleep(args.step_seconds)
            if args.fail_at is not None and job.position.step >= args.fail_at and epoch.rank == 1:
                raise RuntimeError("made to fail")
        if args.norm:
            running = [param.data().asnumpy().tobytes() for name, param in net.collect_params().items() if "running" in name]
            logging.warning("STATISTICS %d %d %s", epoch.number, epoch.workers, hashlib.sha256(b"".join(running)).hexdigest()[:12])
    if args.weights:
        np.savez(args.weights, *[param.data().asnumpy() for param in net.collect_params().values()])


if __name__ == "__main__":
    main()
