"""The examples of the rules' pages, each run in a small script: what all of these have in common, and what was told.

As a program: those of the codes that it is given, with the first batch probed, in a process that may fork. It prints
what was told as JSON.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from conducted import Conductor, Plain, PlainLoader
from dyntrain.training.checks import findings
from dyntrain.training.checks.explain import PAGES_FOLDER
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop import probe_driver
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.probe import child
from idioms import BATCH, CROSS, Rows, initialise, labels, mlp, numbers
from mxnet import autograd, gluon
from mxnet.gluon import nn

KINDS = ("bad", "good")
SAMPLES = 4 * BATCH
TRAINER = 'trainer = job.trainer(net.collect_params(), "sgd")\n'
LOADER = "loader = job.loader(dataset, batch_size, shuffle=True)\n"
LOOP = """
for epoch in job.epochs(2, samples=len(dataset), global_batch=batch_size):
    for i, (x, y) in epoch.enumerate(dataset):
"""
TRAIN = """
def train(x, y):
    with autograd.record():
        loss = loss_function(net(x), y)
    loss.backward()
    trainer.step(batch_size)
"""


def examples(code: str) -> dict[str, str]:
    """By their kinds. Raises ValueError where a page has not one of each, the bad one first."""
    text = (PAGES_FOLDER / f"{code}.md").read_text(encoding="utf-8")
    matches = re.findall(r"^(Bad|Good):\n\n```python\n(.*?)```$", text, re.DOTALL | re.MULTILINE)
    if tuple(kind.lower() for kind, _ in matches) != KINDS:
        raise ValueError(f"{code}: a bad example, and then a good one")
    return {kind.lower(): example for kind, example in matches}


def whole(example: str) -> str:
    """A script of it, as `explain` says how one is to be read."""
    above, empty, batch = example.partition("\n\n")
    has_loop = "job.epochs(" in example
    first = "" if "job.trainer(" in example.partition("job.epochs(")[0] else TRAINER
    if has_loop:
        return f"{first}{LOADER if 'loader' in example else ''}{TRAIN}{example}"
    return f"{first}{above if empty else ''}\n{LOOP}{indent(batch if empty else example, ' ' * 8)}"


def names() -> dict[str, Any]:
    """What a script has above its trainer."""
    body, head, both, net = nn.HybridSequential(), nn.Dense(3), nn.HybridSequential(), mlp()
    body.add(nn.Dense(5), nn.BatchNorm(), nn.Activation("tanh"))
    both.add(body, head)
    initialise(both, mx.nd.zeros((1, 4)))
    return {
        "__name__": "train",
        "mx": mx,
        "np": np,
        "autograd": autograd,
        "gluon": gluon,
        "net": net,
        "params": list(net.collect_params().values()),
        "body": body,
        "head": head,
        "dataset": Rows(numbers(SAMPLES, 4), labels(3, shape=(SAMPLES,))),
        "validation": Rows(numbers(10, 4, seed=9), labels(3, shape=(10,), seed=9)),
        "batch_size": BATCH,
        "loss_function": CROSS,
        "scales": [1.0, 0.5] * SAMPLES,
        "validate": lambda: 0.5,
    }


class OneProcess(Plain):
    """Gluon's own trainer and loader."""

    def loader(self, *args: Any, **options: Any) -> PlainLoader:
        self.loaders = [*getattr(self, "loaders", []), super().loader(*args, **options)]
        return self.loaders[-1]

    def epochs(self, *args: Any, **options: Any) -> Any:
        for each in getattr(self, "loaders", []):
            each.begin()  # the orders of a loop are those of the first
        return super().epochs(*args, **options)


@dataclass(frozen=True)
class Ran:
    """`report`: of the rules, and what ended it; `weights`: on each worker that came to the end."""

    report: str
    weights: list[list[Any]]


def run(code: str, kind: str, folder: Path, by: Conductor | OneProcess | None = None) -> Ran:
    return run_script(whole(examples(code)[kind]), folder / f"{code}-{kind}.py", by)


def run_script(source: str, script: Path, by: Conductor | OneProcess | None = None) -> Ran:
    """By one worker; or by as many as the conductor has, or by none, in one process."""
    script.write_text(source, encoding="utf-8")
    compiled = compile(script.read_text(encoding="utf-8"), str(script), "exec")

    def trains(job: Any) -> list[Any]:
        has = {**names(), "job": job}
        exec(compiled, has)  # noqa: S102  # a page's own lines
        return [p.data().asnumpy() for p in (*has["params"], *has["head"].collect_params().values())]

    heard, messages, weights = logging.Handler(logging.WARNING), list[str](), list[list[Any]]()
    heard.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    findings.log.addHandler(heard)
    try:
        with mx.name.NameManager():  # layers are counted as in a process of its own
            weights = by.run(trains) if isinstance(by, Conductor) else [trains(by or ElasticJob.join())]
    except Exception as error:  # noqa: BLE001  # whatever ends it
        messages.append(f"{type(error).__name__}: {error}")
    finally:
        findings.log.removeHandler(heard)
    return Ran("\n".join(messages), weights)


def main(folder: str, *codes: str) -> None:
    Membership.probes = True
    probe_driver.PROBE_SECONDS = probe_driver.SOON_SECONDS = child.IDLE_SECONDS = (
        600  # no outcome hangs on how busy the machine is
    )
    for code in codes:
        for kind in KINDS:
            sys.stdout.write(json.dumps([code, kind, run(code, kind, Path(folder)).report]) + "\n")
            sys.stdout.flush()  # a fork would copy what waits here


if __name__ == "__main__":
    main(*sys.argv[1:])
