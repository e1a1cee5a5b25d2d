"""A training script of a second's start-up for tests: a small net on made-up data, a step as long as a test wants
it.
"""

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

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine import Engine, engine_name, make_engine
from dyntrain.training.job import ElasticJob
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.worker.data.batches import ArrayBatches
from dyntrain.training.worker.membership.client import read_control_file
from dyntrain.training.worker.membership.coordinated import CoordinatedMembership
from mxnet import autograd, gluon


class MortalEngine:
    """Its process dies before or after it is in the group, once, where there is a file that says so."""

    def __init__(self, engine: Engine, doom: Path, moment: str) -> None:
        self._engine, self._doom, self._moment = engine, doom, moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        doomed = self._doom.exists()
        self._doom.unlink(missing_ok=True)
        if doomed and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        phases = self._engine.form(environment, keys)
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return phases


def join(moment: str | None) -> ElasticJob:
    control = read_control_file()
    if moment is None or control is None:
        return ElasticJob.join()
    doom = Path(control.mount) / f"doom-{control.instance_id}"
    engine: Any = MortalEngine(make_engine(engine_name(None), "dist_sync", control.private_ip), doom, moment)
    return ElasticJob(CoordinatedMembership(control, engine))


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

    def keep_others(self) -> None:
        """One worker, outside of the step, for as long as the file that it took is there."""
        if self.take("keep"):
            while self._folder and (self._folder / "keep.taken").exists():
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--samples", type=int, default=97)  # odd on purpose: the last batch is short
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--per-worker", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument(
        "--norm", action="store_true", help="with BatchNorm; prints the running statistics at the end of each epoch"
    )
    parser.add_argument(
        "--hold", type=Path, help="while this file is there, a step takes --step-seconds; then the job runs to its end"
    )
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--weights", help="where to save the final parameters")
    parser.add_argument("--fail-at", type=int, help="raise at this step, in the worker that has rank 1")
    parser.add_argument(
        "--orders",
        type=Path,
        help="a folder for files that make workers hang, load slowly, compute for ever, stand still or keep others",
    )
    parser.add_argument("--places", action="store_true", help="print at each epoch where this process stands")
    parser.add_argument("--validate", type=float, default=0.0, help="so many seconds after each epoch, on rank 0 alone")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument(
        "--child",
        action="store_true",
        help="start a process that leaves this one's group and session, as some data loaders do",
    )
    parser.add_argument(
        "--doom",
        choices=["before", "after"],
        help="die before or after ps-lite's create, where there is a file doom-<instance>",
    )
    return parser.parse_args()


def made_up(samples: int, orders: Orders, load_seconds: float) -> Loaded:
    rng = np.random.default_rng(7)
    data = Loaded(rng.normal(size=(samples, 6)).astype(np.float32), rng.integers(0, 3, samples).astype(np.int32))
    data.orders, data.seconds = orders, load_seconds
    return data


def small_net(dropout: float, norm: bool) -> gluon.nn.HybridSequential:
    mx.random.seed(1)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dropout(dropout), gluon.nn.Dense(3))
    if norm:
        net.add(gluon.nn.BatchNorm())
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 6)))
    return net


def print_statistics(net: gluon.nn.HybridSequential, epoch: Any) -> None:
    running = [param.data().asnumpy().tobytes() for name, param in net.collect_params().items() if "running" in name]
    digest = hashlib.sha256(b"".join(running)).hexdigest()[:12]
    logging.warning("STATISTICS %d %d %s", epoch.number, epoch.workers, digest)


def train(job: ElasticJob, net: gluon.nn.HybridSequential, data: Loaded, args: argparse.Namespace) -> None:
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    batching = PerWorker(args.batch_size) if args.per_worker else FixedGlobal(args.batch_size)
    for epoch in job.epochs(args.epochs, samples=len(data), batching=batching, seed=3):
        if args.places:
            place = (job.rank, job.local_rank, job.local_size, job.cross_rank, epoch.workers)
            if engine_name(None) == "horovod":
                import horovod.mxnet as hvd

                assert place == (hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.size())
            logging.warning("PLACE %d %d %s", epoch.number, os.getpid(), " ".join(map(str, place)))
        for x, y in epoch.batches(data):
            with autograd.record():
                loss = loss_function(net(x), y)
            loss.backward()
            data.orders.compute()
            data.orders.stand_still()
            data.orders.keep_others()
            trainer.step(len(y))
            epoch.record("loss", float(loss.sum().asscalar()), len(y))
            if args.hold and args.hold.exists():
                time.sleep(args.step_seconds)
            if args.fail_at is not None and job.position.step >= args.fail_at and epoch.rank == 1:
                raise RuntimeError("made to fail")
        if args.validate and job.rank == 0:
            net(mx.nd.zeros((1, 6))).wait_to_read()
            time.sleep(args.validate)
        if args.norm:
            print_statistics(net, epoch)


def main() -> None:
    args = arguments()
    orders = Orders(args.orders)
    if args.child:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    orders.hang()
    job = join(args.doom)
    data = made_up(args.samples, orders, args.load_seconds)
    net = small_net(args.dropout, args.norm)
    train(job, net, data, args)
    if args.weights:
        np.savez(args.weights, *[param.data().asnumpy() for param in net.collect_params().values()])


if __name__ == "__main__":
    main()
