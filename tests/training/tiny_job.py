"""A training script of a second's start-up for tests: a small net on made-up data, a step as long as a test wants it."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from training.batches import ArrayBatches
from training.batching import FixedGlobal, PerWorker
from training.client import read_control_file
from training.engine.pslite import PsLite
from training.job import ElasticJob
from training.membership import CoordinatedMembership


class MortalEngine(PsLite):
    """Its process dies before or after it is in the group, once, where there is a file that says so."""

    def __init__(self, host: str, doom: Path, moment: str) -> None:
        super().__init__("dist_sync", host)
        self._doom, self._moment = doom, moment

    def form(self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]) -> dict[str, float]:
        doomed = self._doom.exists()
        self._doom.unlink(missing_ok=True)
        if doomed and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        phases = super().form(environment, keys)
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return phases


def join(moment: str | None) -> ElasticJob:
    control = read_control_file()
    if moment is None or control is None:
        return ElasticJob.join()
    doom = Path(control.mount) / f"doom-{control.instance_id}"
    return ElasticJob(CoordinatedMembership(control, MortalEngine(control.private_ip, doom, moment)))


class Orders:
    """Files in a folder by which a test makes one worker misbehave: whoever takes a file away does as it says."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def take(self, name: str) -> bool:
        """Whether this worker is the one."""
        if self._folder is None:
            return False
        try:
            (self._folder / name).rename(self._folder / f"{name}.taken")
        except FileNotFoundError:
            return False
        return True

    def hang(self) -> None:
        """As in an import."""
        if self.take("hang"):
            time.sleep(3600)

    def load_slowly(self, seconds: float) -> None:
        if self.take("load"):
            time.sleep(seconds)
            self.say("loaded")

    def compute(self) -> None:
        """For ever."""
        if self.take("compute"):
            while True:
                sum(range(1000))
                time.sleep(0.01)  # the tests' machine has other work

    def stand_still(self) -> None:
        """Every worker, inside a step, as long as the file is there."""
        while self._folder and (self._folder / "gate").exists():
            self.say(f"at-the-gate.{os.getpid()}")
            time.sleep(0.02)

    def say(self, name: str) -> None:
        assert self._folder is not None
        (self._folder / name).touch()


class Loaded(ArrayBatches):
    """Data that takes its time when it is told to."""

    orders: Orders
    seconds: float

    def rows(self, indices: Any) -> Any:
        self.orders.load_slowly(self.seconds)
        return super().rows(indices)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--samples", type=int, default=97)  # odd on purpose: the last batch is short
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--per-worker", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--norm", action="store_true", help="with BatchNorm; prints the running statistics at the end of each epoch")
    parser.add_argument("--hold", type=Path, help="while this file is there, a step takes --step-seconds; then the job runs to its end")
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--weights", help="where to save the final parameters")
    parser.add_argument("--fail-at", type=int, help="raise at this step, in the worker that has rank 1")
    parser.add_argument("--orders", type=Path, help="a folder for files that make a worker hang, load slowly, compute for ever or stand still")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--child", action="store_true", help="start a process that leaves this one's group and session, as some data loaders do")
    parser.add_argument("--doom", choices=["before", "after"], help="die before or after ps-lite's create, where there is a file doom-<instance>")
    args = parser.parse_args()
    orders = Orders(args.orders)
    if args.child:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    orders.hang()

    job = join(args.doom)
    rng = np.random.default_rng(7)
    data = Loaded(rng.normal(size=(args.samples, 6)).astype(np.float32), rng.integers(0, 3, args.samples).astype(np.int32))
    data.orders, data.seconds = orders, args.load_seconds
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
            orders.compute()
            orders.stand_still()
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
