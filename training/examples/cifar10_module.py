"""ResNet on CIFAR-10 in RecordIO with the Module API: a script as AWS Dynamic Training's users have them, with its import line changed.

python -m training.examples.cifar10_module --data DIRECTORY --kv-store dist_device_sync
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from pathlib import Path
from typing import Any

import training.elastic_mxnet as mx  # was: import mxnet as mx
from training.examples.cifar10_data import record_iterator
from training.examples.cifar10_net import resnet_symbol


class CifarIterator(mx.mod.BaseDataIterator):  # type: ignore[misc,name-defined]  # mxnet has no types
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        args = self._args
        train = record_iterator(args.data / "cifar10_train.rec", args.batch_size, kv.rank, kv.num_workers, training=True)
        validation = record_iterator(args.data / "cifar10_val.rec", args.batch_size, kv.rank, kv.num_workers, training=False)
        # all workers must have as many batches as each other
        return mx.io.ResizeIter(train, batches(args, kv)), validation


def batches(args: argparse.Namespace, kv: Any) -> int:
    count: int = math.ceil(args.num_examples / kv.num_workers / args.batch_size)
    return count


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.examples.cifar10_module", description="Train a ResNet on CIFAR-10 with Module.")
    parser.add_argument("--data", type=Path, required=True, help="directory of cifar10_train.rec and cifar10_val.rec")
    parser.add_argument("--num-layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--num-examples", type=int, default=50000)
    parser.add_argument("--num-epochs", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=128, help="samples in a step of one worker")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--lr-step-epochs", default="80,120")
    parser.add_argument("--model-prefix", help="save the parameters of each epoch under this name")
    parser.add_argument("--gpus", help="numbers, as in 0,1; default: the CPU")
    parser.add_argument("--kv-store", default="device")
    args = parser.parse_args(argv)

    kv = mx.kvstore.create(args.kv_store)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)-15s Node[{kv.rank}] %(message)s")
    iterator = CifarIterator(args)
    train, validation = iterator.get_data_iterator(kv)
    steps = [batches(args, kv) * int(epoch) for epoch in args.lr_step_epochs.split(",")]
    devices = [mx.gpu(int(number)) for number in args.gpus.split(",")] if args.gpus else mx.cpu()
    model = mx.mod.Module(context=devices, symbol=resnet_symbol(args.num_layers, args.width), data_iterator=iterator)
    model.fit(
        train,
        num_epoch=args.num_epochs,
        eval_data=validation,
        eval_metric=["accuracy"],
        kvstore=kv,
        optimizer="sgd",
        optimizer_params={
            "learning_rate": args.lr,
            "momentum": 0.9,
            "wd": 1e-4,
            "lr_scheduler": mx.lr_scheduler.MultiFactorScheduler(step=steps, factor=0.1, base_lr=args.lr),
        },
        initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        batch_end_callback=[mx.callback.Speedometer(args.batch_size, 20)],
        epoch_end_callback=mx.callback.do_checkpoint(args.model_prefix) if args.model_prefix else None,
        allow_missing=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
