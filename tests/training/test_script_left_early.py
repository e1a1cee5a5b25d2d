"""A script that may leave its loop is told so before the first step, with the line, and trains."""

from __future__ import annotations

import ast
import subprocess
import sys
from textwrap import dedent
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.script.left_early import leaving_statements
from dyntrain.training.worker.script.source import Site
from idioms import BATCH, CROSS, SAMPLES, data, mlp
from mxnet import autograd


class Setting:
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


SOURCES = {
    "the epochs": """
        for epoch in job.epochs(2):
            for x, y in epoch.batches(data):
                step(x, y)
            if epoch == 1:
                break  # here""",
    "the batches": """
        for epoch in job.epochs(2):
            for i, (x, y) in epoch.enumerate(loader):
                if i == 3:
                    break  # here
                step(x, y)""",
    "a loader's batches, by its name": """
        for epoch in job.epochs(
            2,
            global_batch=6,
        ):
            for i, (x, y) in enumerate(loader):
                step(x, y)
                if epoch and i > 1:
                    break  # here""",
    "a function": """
        def train():
            for _ in list(range(1)):
                for epoch in job.epochs(2):
                    for x, y in epoch.batches(loader):
                        step(x, y)
                        if steps > 2:
                            with open(__file__):
                                return  # here""",
    "in a case": """
        for epoch in job.epochs(2):
            for x, y in epoch.batches(loader):
                step(x, y)
            match int(epoch):
                case 1:
                    break  # here""",
    "in a handler": """
        for epoch in job.epochs(2):
            try:
                train(epoch)
            except ValueError:
                break  # here""",
    "nothing: all of these leave something else": """
        def found(value):
            for n in range(9):
                if n == value:
                    return n
            return -1

        for epoch in job.epochs(2):

            def twice(value):
                return 2 * value

            for x, y in epoch.batches(loader):
                while True:
                    break
                step(x, y)
            for _ in validation:
                break
            for i, _ in enumerate(validation):
                if i:
                    break
            else:
                pass
        for _ in validation:
            break""",
}


@pytest.mark.parametrize("what", SOURCES)
def test_what_would_leave_the_loop_is_seen_with_its_line(what: str) -> None:
    source = dedent(SOURCES[what]).strip()
    lines = [*enumerate(source.splitlines(), 1)]
    begins = next(line for line, text in lines if "job.epochs(" in text)
    advice = leaving_statements(Site("train.py", begins, source, frozenset({"loader"})), ast.parse(source))
    assert [line for _, line, _ in advice] == [line for line, text in lines if "# here" in text]


DEBUG = False


def breaks_for_a_developer(setting: Setting) -> None:
    for epoch in setting.job.epochs(1):
        for x, y in epoch.batches(setting.loader):
            setting.step(x, y)
            if DEBUG:
                break  # dyntrain: ignore[DT601]


def returns_for_a_developer(setting: Setting) -> None:
    for epoch in setting.job.epochs(1):
        for x, y in epoch.batches(setting.loader):
            if DEBUG:
                return
            setting.step(x, y)


@pytest.mark.parametrize("script", [breaks_for_a_developer, returns_for_a_developer])
def test_a_way_out_that_is_never_taken_is_told_of_and_stops_nothing_and_its_line_may_silence_it(
    script: Any, reported_codes: Any
) -> None:
    script(setting := Setting())
    assert setting.steps == -(-SAMPLES // BATCH)
    assert ("DT601" in reported_codes()) != ("DT601" in setting.job.membership.findings.silenced)


def test_a_script_whose_source_is_not_there_is_taken_as_it_is() -> None:
    setting = Setting()
    lines = "for epoch in job.epochs(1):\n    for x, y in epoch.batches(loader):\n        step(x, y)\n"
    names = {"job": setting.job, "loader": setting.loader, "step": setting.step}
    exec(compile(lines, "<nowhere>", "exec"), names)  # noqa: S102  # our own test's lines
    assert setting.steps == 4


ENDS_WITHIN = """
import dyntrain.training.numpy_aliases
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.script.left_early import leaving_statements
from dyntrain.training.worker.script.source import Site
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
