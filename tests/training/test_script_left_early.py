"""A script that may leave its loop is told so before the first step, with the line, and trains."""

from __future__ import annotations

import contextlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, SAMPLES, data, mlp
from mxnet import autograd, gluon


class Made:
    """A job, and what its scripts have."""

    def __init__(self) -> None:
        self.job, self.net = ElasticJob.join(), mlp()
        self.trainer = self.job.trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.1})
        self.loader = self.job.loader(data(), BATCH)
        self.steps = 0

    def step(self, x: Any, y: Any) -> None:
        with autograd.record():
            loss = CROSS(self.net(x), y)
        loss.backward()
        self.trainer.step(len(x))
        self.steps += 1


def breaks_epochs(made: Made) -> None:
    for epoch in made.job.epochs(2):
        for x, y in epoch.batches(made.loader):
            made.step(x, y)
        if epoch == 1:
            break  # here


def breaks_batches(made: Made) -> None:
    for epoch in made.job.epochs(2):
        for i, (x, y) in epoch.enumerate(made.loader):
            if i == 3:
                break  # here
            made.step(x, y)


def breaks_a_loader(made: Made) -> None:
    train_data = made.loader
    for epoch in made.job.epochs(
        2,
        global_batch=BATCH,
    ):
        for i, (x, y) in enumerate(train_data):
            made.step(x, y)
            if epoch and i > 1:
                break  # here


def returns(made: Made) -> None:
    for _ in list(range(1)):
        for epoch in made.job.epochs(2):
            for x, y in epoch.batches(made.loader):
                made.step(x, y)
                if made.steps > 2:
                    with open(__file__):
                        return  # here


def breaks_in_a_case(made: Made) -> None:
    for epoch in made.job.epochs(2):
        for x, y in epoch.batches(made.loader):
            made.step(x, y)
        match int(epoch):
            case 1:
                break  # here


@pytest.mark.parametrize(
    "script",
    [
        breaks_epochs, breaks_batches, breaks_a_loader, returns, breaks_in_a_case,
    ],
)  # fmt: skip
def test_leaving_the_loop_is_told_of_with_the_line(script: Callable[[Made], None], caplog: Any) -> None:
    lines, first = inspect.getsourcelines(script)
    line = first + next(i for i, text in enumerate(lines) if "# here" in text)
    made = Made()
    with contextlib.suppress(RuntimeError):  # batches are left
        script(made)
    assert re.search(rf"test_script_left_early.py:{line}: DT601: .*steps=N.*job\.stop", caplog.text)
    assert made.steps


DEBUG = False


def breaks_for_a_developer(made: Made) -> None:
    for epoch in made.job.epochs(1):
        for x, y in epoch.batches(made.loader):
            made.step(x, y)
            if DEBUG:
                break  # dyntrain: ignore[DT601]


def returns_for_a_developer(made: Made) -> None:
    for epoch in made.job.epochs(1):
        for x, y in epoch.batches(made.loader):
            if DEBUG:
                return
            made.step(x, y)


@pytest.mark.parametrize("script", [breaks_for_a_developer, returns_for_a_developer])
def test_a_way_out_that_is_never_taken_stops_nothing_and_its_line_may_silence_it(script: Any, told: Any) -> None:
    script(made := Made())
    assert made.steps == -(-SAMPLES // BATCH)
    assert ("DT601" in told()) != ("DT601" in made.job.membership.findings.silenced)


def stays(made: Made) -> None:
    """Every `break` and `return` here is of something else."""
    validation = gluon.data.DataLoader(data(), 4)

    def found(value: int) -> int:
        for n in range(9):
            if n == value:
                return n
        return -1

    for epoch in made.job.epochs(2):

        def twice(value: int) -> int:
            return 2 * value

        for x, y in epoch.batches(made.loader):
            while True:
                break
            made.step(x, y)
            assert twice(found(3)) == 6
        for _ in validation:
            break
        for i, _ in enumerate(validation):
            if i:
                break
        else:
            pass
    for _ in validation:
        break


def test_what_leaves_other_loops_stays() -> None:
    made = Made()
    stays(made)
    assert made.steps == 2 * -(-SAMPLES // BATCH)


def test_a_script_whose_source_is_not_there_is_taken_as_it_is() -> None:
    made = Made()
    lines = "for epoch in made.job.epochs(1):\n    for x, y in epoch.batches(made.loader):\n        made.step(x, y)\n"
    exec(compile(lines, "<nowhere>", "exec"), {"made": made})  # noqa: S102  # our own test's lines
    assert made.steps == 4


ENDS_WITHIN = """
import dyntrain.training.numpy_aliases
from dyntrain.training.job import ElasticJob
from mxnet import gluon
job, net = ElasticJob.join(), gluon.nn.Dense(1, in_units=1)
net.initialize()
job.trainer(net.collect_params(), "sgd")
epochs = job.epochs(2, samples=4, global_batch=2)
next(epochs)
"""


def test_a_script_that_ends_within_its_loop_ends() -> None:
    """The loop is left while the interpreter takes itself down, where no thread can begin any more."""
    subprocess.run([sys.executable, "-c", ENDS_WITHIN], check=True, timeout=patient(60))
