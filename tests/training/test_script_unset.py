"""What a loop over epochs alone sets, and a line after it uses: not there on a worker that begins in a later loop, nor
anywhere when the job goes on from that one's commits. It is told of before the first step, with the line.
"""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.script.unset import followed, unset_after
from idioms import BATCH, SAMPLES, data, mlp
from phased import step

FOLDS = """
def fold(number):
    trainer = job.trainer(net.collect_params(), "sgd")
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, name=str(number)):
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)
        accuracy = epoch + number
    {after}

for number in range(2):
    fold(number)
"""


def run(source: str, folder: Path) -> None:
    file = folder / "folds.py"
    file.write_text(source)
    names = {"job": ElasticJob.join(), "net": mlp(), "SAMPLES": SAMPLES, "BATCH": BATCH, "data": data, "step": step}
    exec(compile(source, str(file), "exec"), names)  # noqa: S102


def test_a_score_of_a_loop_that_its_function_returns_is_told_of(tmp_path: Path, caplog: Any) -> None:
    run(FOLDS.format(after="return accuracy"), tmp_path)
    assert "folds.py:8: DT603: 'accuracy' is set in the loop of line 4" in caplog.text


@pytest.mark.parametrize("after", ["pass", "if job.writes: print(accuracy)", "accuracy = 1; return accuracy"])
def test_what_one_worker_alone_uses_or_nobody_is_not(after: str, tmp_path: Path, told: Any) -> None:
    run(FOLDS.format(after=after), tmp_path)
    assert "DT603" not in told()


LOOP = """for epoch in job.epochs(2):
    for x, y in loader:
        loss = step(x, y)
    name, score = metric.get()
"""
NEXT = "for epoch in job.epochs(3):\n    pass\n"
SOURCES = {
    "two loops, and a print between them": (LOOP + "print('warm-up', score)\n" + NEXT, [("score", 5)]),
    "an item of it": (LOOP + "best = max(loss[0], 1)\n" + NEXT, [("loss", 5)]),
    "it is added to": (LOOP + "score += 1\n" + NEXT, [("score", 5)]),
    "the epoch's number": (LOOP + "print(f'{epoch} epochs')\n" + NEXT, [("epoch", 5)]),
    "in a comprehension": (LOOP + "print([score for _ in '12'])\n" + NEXT, [("score", 5)]),
    "in a later branch": (LOOP + "if True:\n    pass\nelse:\n    print(x)\n" + NEXT, [("x", 8)]),
    "in a branch for all but one": (LOOP + "if job.writes:\n    pass\nelse:\n    print(x)\n" + NEXT, [("x", 8)]),
    "it has a value above": ("score = None\n" + LOOP + "print(score)\n" + NEXT, []),
    "set anew before it is used": (LOOP + "for x in loader:\n    print(x)\n" + NEXT, []),
    "set anew and used on one line": (LOOP + "for x in loader: print(x)\n" + NEXT, []),
    "used on the line that sets it anew": (LOOP + "x = x + 1\n" + NEXT, [("x", 5)]),
    "used further down in what sets it anew": (LOOP + "x = (\n    x + 1)\n" + NEXT, [("x", 6)]),
    "gone through by a loop with it": (LOOP + "for x in x: print(x)\n" + NEXT, [("x", 5)]),
    "set and used on one line": (LOOP + "x = 1; print(x)\n" + NEXT, []),
    "another of the same name": (LOOP + "print([x for x in '12'])\n" + NEXT, []),
    "a function's own": (LOOP + "def f(x):\n    return x\nf(1)\n" + NEXT, []),
    "the last loop of a script": (NEXT + LOOP + "print(score)\n", []),
    "the last loop, and an option of that name": (NEXT + LOOP + "print(score, args.epochs)\n", []),
    "imported above": ("import score\n" + LOOP + "print(score)\n" + NEXT, []),
    "global in a function": (
        "def fit():\n    global score\n" + indent(LOOP + "print(score)\n", "    ") + "fit()\nfit()\n",
        [],
    ),
    "the last loop of a function": (
        "def main():\n" + indent(NEXT + LOOP + "print(score)\n", "    ") + "main()\n",
        [],
    ),
    "the first loop of a function": (
        "def main():\n" + indent(LOOP + "print(score)\n" + NEXT, "    ") + "main()\n",
        [("score", 6)],
    ),
    "a function that another file calls": (
        "def fit():\n" + indent(LOOP + "return score\n", "    "),
        [],
    ),
    "an argument": (
        "def fit(score):\n    for epoch in job.epochs(1):\n        score = 2\n    return score\nfit(1)\nfit(2)\n",
        [],
    ),
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_what_is_unset_is_seen_in_the_source(name: str) -> None:
    source, unset = SOURCES[name]
    tree = ast.parse(source)
    found: list[Any] = []
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and "epochs" in ast.unparse(loop.iter) and followed(tree, loop):
            found += unset_after(tree, loop)
    assert found == unset
