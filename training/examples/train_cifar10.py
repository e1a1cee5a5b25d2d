"""Trains a ResNet on CIFAR-10 with MXNet's Module API, like a typical script for AWS Dynamic Training.

The flags are those of MXNet's own example `train_cifar10.py`.

    python prepare-data.py
    python train_cifar10.py --network resnet --num-layers 50 --kv-store dist_device_sync

Without `--data-train` and `--data-val`, the script reads the files that `prepare-data.py` created. The command
`python -m dyntrain.training.examples.cifar10_data data` creates synthetic data for `--num-examples 500`.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from typing import Any

# This replaces `import mxnet as mx`, which also works with `dyntrain launch --dt-scripts`.
import dyntrain.training.elastic_mxnet as mx
from dyntrain.training.examples.cifar10_data import CifarError, record_iterator
from dyntrain.training.examples.cifar10_flags import parse
from dyntrain.training.examples.cifar10_net import resnet_symbol


class CifarIterator(mx.mod.BaseDataIterator):  # type: ignore[misc,name-defined]  # mxnet has no types
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        args, worker_part = self._args, (kv.rank, kv.num_workers)
        read_options = {"threads": args.data_nthreads, "padding": args.pad_size}
        train = record_iterator(args.data_train, args.batch_size, *worker_part, training=True, **read_options)
        validation = record_iterator(args.data_val, args.batch_size, *worker_part, training=False, **read_options)
        # all workers must have equally many batches
        return mx.io.ResizeIter(train, batches_per_epoch(args, kv)), validation


def batches_per_epoch(args: argparse.Namespace, kv: Any) -> int:
    """Return the number of batches that one worker trains on in an epoch."""
    batch_count: int = math.ceil(args.num_examples / kv.num_workers / args.batch_size)
    return batch_count


def learning_rate_and_schedule(args: argparse.Namespace, epoch_batches: int) -> tuple[float, Any]:
    """Return the learning rate of the first trained epoch, and the schedule that lowers the rate in later epochs."""
    first_epoch = args.load_epoch or 0
    past_decays = sum(first_epoch >= epoch for epoch in args.lr_step_epochs)
    learning_rate = args.lr * args.lr_factor**past_decays
    decay_steps = [epoch_batches * (epoch - first_epoch) for epoch in args.lr_step_epochs[past_decays:]]
    if not decay_steps:
        return learning_rate, None
    return learning_rate, mx.lr_scheduler.MultiFactorScheduler(
        step=decay_steps, factor=args.lr_factor, base_lr=learning_rate
    )


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    kv = mx.kvstore.create(args.kv_store)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)-15s Node[{kv.rank}] %(message)s")
    if args.gc_type != "none":
        kv.set_gradient_compression({"type": args.gc_type, "threshold": args.gc_threshold})
    arg_params = aux_params = None
    if args.load_epoch is not None:
        _, arg_params, aux_params = mx.model.load_checkpoint(args.model_prefix, args.load_epoch)
    data_source = CifarIterator(args)
    try:
        train, validation = data_source.get_data_iterator(kv)
    except CifarError as error:
        print(f"train_cifar10: {error}", file=sys.stderr)  # noqa: T201
        return 2
    devices = [mx.gpu(gpu_number) for gpu_number in args.gpus] or mx.cpu()
    model = mx.mod.Module(context=devices, symbol=resnet_symbol(args.num_layers), data_iterator=data_source)
    learning_rate, schedule = learning_rate_and_schedule(args, batches_per_epoch(args, kv))
    optimizer_options = {"learning_rate": learning_rate, "wd": args.wd, "lr_scheduler": schedule}
    if args.optimizer in ("sgd", "nag", "signum"):
        optimizer_options["momentum"] = args.mom
    metrics = ["accuracy"]
    if args.top_k > 1:
        metrics.append(mx.metric.create("top_k_accuracy", top_k=args.top_k))
    checkpoint_callback = mx.callback.do_checkpoint(args.model_prefix, args.save_period) if args.model_prefix else None
    model.fit(
        train,
        begin_epoch=args.load_epoch or 0,
        num_epoch=args.num_epochs,
        eval_data=validation,
        eval_metric=metrics,
        kvstore=kv,
        optimizer=args.optimizer,
        optimizer_params=optimizer_options,
        initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        arg_params=arg_params,
        aux_params=aux_params,
        batch_end_callback=[mx.callback.Speedometer(args.batch_size, args.disp_batches)],
        epoch_end_callback=checkpoint_callback,
        allow_missing=True,
        monitor=mx.mon.Monitor(args.monitor, pattern=".*") if args.monitor > 0 else None,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
