"""A script for AWS Dynamic Training with its import line changed, small enough for tests."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import dyntrain.training.elastic_mxnet as mx
import numpy as np


class Data(mx.mod.BaseDataIterator):
    """`divided`: one batch over all workers, in place of as many samples for each."""

    def __init__(self, batch: int, divided: bool) -> None:
        rng = np.random.default_rng(7)
        self.x, self.y, self.batch = (
            rng.normal(size=(96, 6)).astype(np.float32),
            rng.integers(0, 3, 96).astype(np.float32),
            batch,
        )
        self.divided = divided

    def get_data_iterator(self, kv):
        logging.info("DIVIDE %d %d", kv.rank, kv.num_workers)
        mine = slice(kv.rank, None, kv.num_workers)
        batch = self.batch // kv.num_workers if self.divided else self.batch
        train = mx.io.ResizeIter(mx.io.NDArrayIter(self.x[mine], self.y[mine], batch), 96 // batch // kv.num_workers)
        return train, mx.io.NDArrayIter(self.x[:20], self.y[:20], 10)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--kv-store", default="dist_sync")
    parser.add_argument("--hold", type=Path)
    parser.add_argument("--model-prefix")
    parser.add_argument("--divided", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    mx.random.seed(1)
    kv = mx.kvstore.create(args.kv_store)
    data = Data(12 if args.divided else 4, args.divided)
    train, val = data.get_data_iterator(kv)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="one")
    net = mx.sym.Activation(net, act_type="relu")
    if not args.divided:  # each worker's statistics are of its own part
        net = mx.sym.BatchNorm(net, name="norm")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="two"), name="softmax")
    model = mx.mod.Module(symbol=net, context=mx.cpu(), data_iterator=data)

    def after_batch(_: object) -> None:
        if args.hold and args.hold.exists():
            time.sleep(0.05)

    def after_epoch(epoch: int, symbol: object, arg: object, aux: dict) -> None:
        optimizer = model._optimizer
        logging.info(
            "EPOCH %d rank %d of %d rescale %.6f lr %.6f mean %s",
            epoch,
            kv.rank,
            kv.num_workers,
            optimizer.rescale_grad,
            optimizer.learning_rate,
            aux["norm_moving_mean"].asnumpy().tobytes().hex() if aux else "-",
        )

    model.fit(
        train,
        eval_data=val,
        num_epoch=args.epochs,
        kvstore=kv,
        optimizer_params={
            "learning_rate": 0.1,
            "momentum": 0.9,
            "lr_scheduler": mx.lr_scheduler.FactorScheduler(
                step=24 * 6, factor=0.5, base_lr=0.1
            ),  # every six epochs of one worker's batches
        },
        batch_end_callback=after_batch,
        epoch_end_callback=[
            after_epoch,
            *([mx.callback.do_checkpoint(args.model_prefix)] if args.model_prefix else []),
        ],
    )


if __name__ == "__main__":
    main()
