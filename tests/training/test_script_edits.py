"""How little of a script changes: each idiom's script is turned back into the one that knows nothing of a job. That one
trains with Gluon's own Trainer and DataLoader to the same weights, and differs from the elastic one in six lines at
most.
"""

from __future__ import annotations

import difflib
import inspect
import re
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import idioms
import numpy as np
import pytest
from conducted import PlainLoader
from dyntrain.training import examples
from dyntrain.training.job import ElasticJob

MOST = 6
GUIDE = Path(__file__).parents[2] / "training" / "GUIDE.md"
PLAIN = (  # what a piece of the elastic script is in the plain one
    (r", loss=\"mean\"\)", r")"),
    (r"\bjob\.trainer\(", r"gluon.Trainer("),
    (r"\bjob\.loader\((.+?)(, whole_batch=(?:True|False))?\)\n", r"DataLoader(\1)\n"),
    (r"\bjob\.keep\((.+)\)\n", r"\1\n"),
    (r"\bjob\.epochs\((\w+)\)", r"range(\1)"),
    (r"\bjob\.epochs\((\w+), samples=\w+, global_batch=\w+\)", r"range(\1)"),
    (r"\bepoch\.enumerate\((.+)\):\n", r"enumerate(DataLoader(\1, BATCH_SIZE, shuffle=True)):\n"),
    (r"\bepoch\.batches\((.+)\):\n", r"DataLoader(\1, BATCH_SIZE, shuffle=True):\n"),
    (r"step\(epoch\.sum\((.+)\)\)\n", r"step(\1)\n"),
    (r"\bepoch\.number\b", r"epoch"),
    (r"\(job: Any\)", r"()"),  # stands for the line `job = ElasticJob.join()`
)
# The others are one script with several optimizers, whose lines are those of `horovod`.
SCRIPTS = [script for script in idioms.SCRIPTS if inspect.getsource(script).startswith("def ")]


def plain(script: Any) -> tuple[str, str]:
    """(the script without a job, the elastic one)."""
    elastic = inspect.getsource(script)
    batch_size = re.findall(r"global_batch=(\w+)", elastic)
    assert len(batch_size) == ("job.loader" not in elastic)
    text = elastic
    for piece, instead in PLAIN:
        text = re.sub(piece, instead.replace("BATCH_SIZE", "".join(batch_size)), text)
    assert not re.search(r"\bjob\b|\bepoch\.\w", text), text
    return text, elastic


def changed(before: str, after: str) -> int:
    """Lines of `after` that are not in `before`, and the import."""
    difference = difflib.ndiff(before.splitlines(), after.splitlines())
    return 1 + sum(line.startswith("+ ") for line in difference)


class Loaders:
    """Those that a script makes: each epoch's, or one that it goes through in every epoch."""

    def __init__(self) -> None:
        self._passes = 0

    def __call__(self, *args: Any, **options: Any) -> PlainLoader:
        self._passes += 1
        return PlainLoader(*args, passes=self._passes - 1, **options)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_at_most_six_lines_of_a_script_change_and_the_weights_do_not(script: Any) -> None:
    before, after = plain(script)
    assert changed(before, after) <= MOST, before
    names: dict[str, Any] = {**vars(idioms), "DataLoader": Loaders()}
    exec(compile(before, f"<{script.__name__} without a job>", "exec"), names)  # noqa: S102  # our own test's lines
    for mine, theirs in zip(script(ElasticJob.join()), names[script.__name__](), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_the_guides_edits_are_as_few() -> None:
    shown = re.findall(r"```diff\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for difference in shown:
        assert sum(line.startswith("+") for line in difference.splitlines()) <= MOST


@pytest.mark.parametrize("name", ["digits", "cifar10_gluon"])
def test_the_examples_need_as_few_lines_the_rest_of_the_epochs_face_is_to_report(name: str) -> None:
    lines = (Path(examples.__path__[0]) / f"{name}.py").read_text(encoding="utf-8").splitlines()
    needed = [line for line in lines if re.search(r"\bElasticJob\b|\bjob\.|\bepoch\.(batches|enumerate)\(", line)]
    assert 4 <= len(needed) <= MOST, needed
    others = {use for line in lines for use in re.findall(r"\bepoch\.(\w+)", line)} - {"batches", "enumerate"}
    assert others <= {"record", "share", "number", "rank", "workers"}
