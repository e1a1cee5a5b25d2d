"""Everything around Module.fit: store, schedule, checkpoints, and the iterator that Dynamic Training asks for after
each change.
"""

import logging
import math
import time

import mxnet as mx


def add_fit_args(parser):
    train = parser.add_argument_group("Training")
    train.add_argument("--network", type=str)
    train.add_argument("--num-layers", type=int)
    train.add_argument("--gpus", type=str)
    train.add_argument("--kv-store", type=str, default="device")
    train.add_argument("--num-epochs", type=int, default=6)
    train.add_argument("--lr", type=float, default=0.1)
    train.add_argument("--lr-factor", type=float, default=0.1)
    train.add_argument("--lr-step-epochs", type=str)
    train.add_argument("--optimizer", type=str, default="sgd")
    train.add_argument("--mom", type=float, default=0.9)
    train.add_argument("--wd", type=float, default=0.0001)
    train.add_argument("--batch-size", type=int, default=128)
    train.add_argument("--disp-batches", type=int, default=2)
    train.add_argument("--model-prefix", type=str)
    train.add_argument("--load-epoch", type=int)
    train.add_argument("--top-k", type=int, default=3)
    train.add_argument("--monitor", type=int, default=0)
    train.add_argument("--gc-type", type=str, default="none")


def get_epoch_size(args, kv):
    return math.ceil(int(args.num_examples / kv.num_workers) / args.batch_size)


def get_lr_scheduler(args, kv):
    if not args.lr_factor or args.lr_factor >= 1:
        return args.lr, None
    epoch_size, begin = get_epoch_size(args, kv), args.load_epoch or 0
    epochs = [int(epoch) for epoch in args.lr_step_epochs.split(",")]
    lr = args.lr * args.lr_factor ** sum(begin >= epoch for epoch in epochs)
    steps = [epoch_size * (epoch - begin) for epoch in epochs if epoch > begin]
    return lr, mx.lr_scheduler.MultiFactorScheduler(
        step=steps, factor=args.lr_factor, base_lr=args.lr
    ) if steps else None


class ETDataIterator(mx.mod.BaseDataIterator):
    def __init__(self, args, data_loader):
        self._args = args
        self._data_loader = data_loader

    def get_data_iterator(self, kv):
        began = time.time()
        train, val = self._data_loader(self._args, kv)
        if "dist" in self._args.kv_store and "async" not in self._args.kv_store:
            size = get_epoch_size(self._args, kv)
            logging.info(
                "worker %d of %d: %d batches, loaded in %.1f s", kv.rank, kv.num_workers, size, time.time() - began
            )
            train = mx.io.ResizeIter(train, size)
        return train, val


def load_model(args):
    if args.load_epoch is None:
        return None, None, None
    return mx.model.load_checkpoint(args.model_prefix, args.load_epoch)


def fit(args, network, data_loader):
    kv = mx.kvstore.create(args.kv_store)
    if args.gc_type != "none":
        kv.set_gradient_compression({"type": args.gc_type, "threshold": 0.5})
    data_iterator = ETDataIterator(args, data_loader)
    train, val = data_iterator.get_data_iterator(kv)
    _, arg_params, aux_params = load_model(args)
    checkpoint = mx.callback.do_checkpoint(args.model_prefix) if args.model_prefix else None
    devs = mx.cpu() if not args.gpus else [mx.gpu(int(i)) for i in args.gpus.split(",")]
    lr, lr_scheduler = get_lr_scheduler(args, kv)
    model = mx.mod.Module(context=devs, symbol=network, data_iterator=data_iterator)
    metrics = ["accuracy"]
    if args.top_k > 0:
        metrics.append(mx.metric.create("top_k_accuracy", top_k=args.top_k))
    model.fit(
        train,
        begin_epoch=args.load_epoch if args.load_epoch else 0,
        num_epoch=args.num_epochs,
        eval_data=val,
        eval_metric=metrics,
        kvstore=kv,
        optimizer=args.optimizer,
        optimizer_params={
            "learning_rate": lr,
            "wd": args.wd,
            "lr_scheduler": lr_scheduler,
            "multi_precision": True,
            "momentum": args.mom,
        },
        initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        arg_params=arg_params,
        aux_params=aux_params,
        batch_end_callback=[mx.callback.Speedometer(args.batch_size, args.disp_batches)],
        epoch_end_callback=checkpoint,
        allow_missing=True,
        monitor=mx.mon.Monitor(args.monitor, pattern=".*") if args.monitor > 0 else None,
    )
