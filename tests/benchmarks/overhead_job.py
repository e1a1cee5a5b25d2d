"""The training loop of the overhead benchmark, elastic or plain: the same network, data and batch; it trains an epoch whenever it is its turn.

The turn is a file that holds `<variant> <round>`. Worker 0 writes each epoch's seconds, and the last loss, to `<variant>.jsonl` beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from training.batches import ArrayBatches
from training.job import ElasticJob

VARIANTS = ("elastic", "plain", "plain_on_kvstore")
TURN = "turn"
SGD = {"learning_rate": 0.001, "momentum": 0.9}
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


class Turns:
    def __init__(self, folder: Path, variant: str) -> None:
        self._turn, self._results, self._variant = folder / TURN, folder / f"{variant}.jsonl", variant
        self._done = 0
        self._began: float | None = None

    def next(self, rank: int) -> None:
        """Ends the epoch before, if there was one, and waits for the turn; a round of 0 or less never comes."""
        if self._began is not None:
            seconds = time.monotonic() - self._began
            if rank == 0:
                with self._results.open("a") as file:
                    file.write(json.dumps({"round": self._done, "seconds": seconds}) + "\n")
        while True:
            variant, number = self._turn.read_text().split()
            if variant == self._variant and int(number) > self._done:
                self._done, self._began = int(number), time.monotonic()
                return
            time.sleep(0.01)


def forward_and_backward(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()


def elastic(net: Any, data: ArrayBatches, batch: int, rounds: int, turns: Turns) -> None:
    job = ElasticJob.join()
    trainer = gluon.Trainer(net.collect_params(), "sgd", dict(SGD), kvstore=job.kvstore)
    for epoch in job.epochs(rounds, net=net, trainer=trainer, samples=len(data), global_batch=batch):
        turns.next(epoch.rank)
        for x, y in epoch.batches(data):
            forward_and_backward(net, x, y)
            epoch.step(trainer)
    turns.next(0)


def plain(net: Any, data: ArrayBatches, batch: int, rounds: int, turns: Turns, on_kvstore: bool) -> None:
    store = mx.kv.create("dist_sync")
    trainer = gluon.Trainer(net.collect_params(), "sgd", dict(SGD), kvstore=store, update_on_kvstore=on_kvstore)
    order: Callable[[int], Any] = lambda seed: np.random.default_rng(seed).permutation(len(data))  # noqa: E731
    share = batch // store.num_workers
    for number in range(rounds):
        turns.next(store.rank)
        indices = order(number)
        for start in range(store.rank * share, len(data), batch):
            x, y = data.rows(indices[start : start + share])
            forward_and_backward(net, x, y)
            trainer.step(batch)
        mx.nd.waitall()
    turns.next(store.rank)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    samples = args.steps * args.batch_size
    data = ArrayBatches(rng.normal(size=(samples, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, samples).astype(np.int32))
    mx.random.seed(1)
    net = getattr(gluon.model_zoo.vision, args.network)(classes=10)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    net(mx.nd.zeros((2, 3, 32, 32)))
    turns = Turns(args.folder, args.variant)
    if args.variant == "elastic":
        elastic(net, data, args.batch_size, args.rounds, turns)
    else:
        plain(net, data, args.batch_size, args.rounds, turns, args.variant == "plain_on_kvstore")


if __name__ == "__main__":
    main()
