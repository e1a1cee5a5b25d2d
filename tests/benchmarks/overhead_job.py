"""The training loop of the overhead benchmark, elastic or plain, which makes some steps in each of its turns.

All variants have the same network, data and batch. A turn begins with a line in the worker's own FIFO,
`<variant>-<rank>`, so a waiting worker costs the others nothing. Worker 0 writes the seconds of each turn to
`<variant>.jsonl`: from that line until the loop reaches the first step of the next turn, with all that it does in
between. The first turn has half the steps, so that the end of an epoch, with its boundary and commit, is in the middle
of a turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.checks.findings import Mode
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.batches import ArrayBatches
from mxnet import autograd, gluon

VARIANTS = ("elastic", "elastic_unchecked", "plain", "plain_on_kvstore")
ALL_REDUCE = ("elastic_horovod", "plain_horovod")
FOR_EVER = 1_000_000  # epochs: the benchmark ends the job
SGD = {"learning_rate": 0.001, "momentum": 0.9}
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def word_to(folder: Path, variant: str, rank: int) -> BinaryIO:
    """Open the FIFO for reading and writing, so that neither side waits for the other or sees an end of file."""
    return (folder / f"{variant}-{rank}").open("r+b", buffering=0)


class Turns:
    def __init__(self, folder: Path, variant: str, steps: int) -> None:
        self._folder, self._variant, self._steps = folder, variant, steps
        self._word: BinaryIO | None = None
        self._number = 0
        self._steps_made = 0
        self._began = 0.0

    def before_step(self, rank: int) -> None:
        """At the end of a turn, wait for this variant's next turn."""
        if self._number and self._steps_made < self._steps:
            self._steps_made += 1
            return
        mx.nd.waitall()
        if self._number and rank == 0:
            with (self._folder / f"{self._variant}.jsonl").open("a") as file:
                file.write(json.dumps({"turn": self._number, "seconds": time.monotonic() - self._began}) + "\n")
        if self._word is None:
            self._word = word_to(self._folder, self._variant, rank)
        self._word.readline()
        self._steps_made = 1 if self._number else self._steps // 2 + 1
        self._number, self._began = self._number + 1, time.monotonic()


class InTurns(ArrayBatches):
    """The data, which is delivered only in the variant's turn."""

    def __init__(self, arrays: Sequence[Any], before_step: Callable[[], None]) -> None:
        super().__init__(*arrays)
        self._before_step = before_step

    def rows(self, indices: Any) -> list[Any]:
        self._before_step()
        return super().rows(indices)


def forward_and_backward(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()


def elastic(net: Any, arrays: Sequence[Any], batch: int, epochs: int, turns: Turns, checks: Mode) -> None:
    job = ElasticJob.join(checks=checks)
    trainer = job.trainer(net.collect_params(), "sgd", dict(SGD))
    mine = InTurns(arrays, lambda: turns.before_step(job.membership.kvstore.rank))
    for epoch in job.epochs(epochs, samples=len(mine), global_batch=batch):
        for x, y in epoch.batches(mine):
            forward_and_backward(net, x, y)
            trainer.step(batch)


def plain(net: Any, arrays: Sequence[Any], batch: int, epochs: int, turns: Turns, on_kvstore: bool) -> None:
    store = mx.kv.create("dist_sync")
    trainer = gluon.Trainer(net.collect_params(), "sgd", dict(SGD), kvstore=store, update_on_kvstore=on_kvstore)
    mine = InTurns(arrays, lambda: turns.before_step(store.rank))
    share = batch // store.num_workers
    for number in range(epochs):
        order = np.random.default_rng(number).permutation(len(mine))
        for start in range(store.rank * share, len(mine), batch):
            x, y = mine.rows(order[start : start + share])
            forward_and_backward(net, x, y)
            trainer.step(batch)


def plain_horovod(net: Any, arrays: Sequence[Any], batch: int, epochs: int, turns: Turns) -> None:
    """Train as Horovod's own examples for MXNet do."""
    import horovod.mxnet as hvd

    hvd.init()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", dict(SGD))
    mine = InTurns(arrays, lambda: turns.before_step(hvd.rank()))
    share = batch // hvd.size()
    for number in range(epochs):
        order = np.random.default_rng(number).permutation(len(mine))
        for start in range(hvd.rank() * share, len(mine), batch):
            x, y = mine.rows(order[start : start + share])
            forward_and_backward(net, x, y)
            trainer.step(share)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=(*VARIANTS, *ALL_REDUCE), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--image", type=int, required=True, help="pixels of a side")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="in an epoch")
    parser.add_argument("--turn-steps", type=int, required=True, help="in a turn")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    samples = args.steps * args.batch_size
    arrays = (
        rng.normal(size=(samples, 3, args.image, args.image)).astype(np.float32),
        rng.integers(0, 10, samples).astype(np.int32),
    )
    mx.random.seed(1)
    net = getattr(gluon.model_zoo.vision, args.network)(classes=10)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    net(mx.nd.zeros((2, 3, args.image, args.image)))
    turns = Turns(args.folder, args.variant, args.turn_steps)
    if args.variant == "plain_horovod":
        plain_horovod(net, arrays, args.batch_size, FOR_EVER, turns)
    elif args.variant.startswith("elastic"):
        unchecked = args.variant == "elastic_unchecked"
        elastic(net, arrays, args.batch_size, FOR_EVER, turns, "off" if unchecked else "warn")
    else:
        plain(net, arrays, args.batch_size, FOR_EVER, turns, args.variant == "plain_on_kvstore")


if __name__ == "__main__":
    main()
