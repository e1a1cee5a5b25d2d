"""The guide for people who bring a script: short, true to the names it uses, and its lines run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from conducted import Conductor, Death
from dyntrain.controller.cli.commands import check
from dyntrain.training.checks.rules import RULES
from dyntrain.training.job import ElasticJob
from dyntrain.training.launch import plan
from dyntrain.training.worker.loop.epoch import Epoch
from rule_examples import run_script, whole

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "training" / "GUIDE.md").read_text(encoding="utf-8")
MOST_WORDS = 2500
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
DEFINED = "".join(block for block in BLOCKS if block.startswith("def "))
SCRIPTS = [block for block in BLOCKS if not block.startswith("def ")]
ELSEWHERE = ("--your", "--help", "--gpus", "--network", "--num-layers", "--kv-store")  # a script's own


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= MOST_WORDS


def test_what_it_names_of_the_job_and_the_epoch_they_have() -> None:
    for name in set(re.findall(r"\bjob\.(\w+)", TEXT)):
        assert hasattr(ElasticJob, name), name
    for name in set(re.findall(r"\bepoch\.(\w+)", TEXT)):
        assert hasattr(Epoch, name) or f"self.{name} =" in inspect.getsource(Epoch), name


@pytest.mark.parametrize("method", ["join", "trainer", "loader", "epochs"])
def test_what_it_passes_them_they_take(method: str) -> None:
    taken = set(inspect.signature(getattr(ElasticJob, method)).parameters)
    for passed in re.findall(rf"(?:job|ElasticJob)\.{method}\(([^`\n]*?)\)[`:\n]", TEXT):
        assert set(re.findall(r"\b(\w+)=", passed)) <= taken, passed


def test_the_options_and_the_rules_that_it_names_are_there() -> None:
    known = inspect.getsource(check) + inspect.getsource(plan)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - set(ELSEWHERE):
        assert f'"{option}"' in known, option
    assert set(re.findall(r"\bDT\d{3}\b", TEXT)) <= set(RULES)


@pytest.mark.parametrize("script", SCRIPTS, ids=[f"block {number}" for number in range(len(SCRIPTS))])
def test_t2_its_lines_train_over_workers_that_come_and_die_as_by_one_and_are_told_of_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes is written there
    source = DEFINED + whole(script)
    alone = run_script(source, tmp_path / "train.py")
    over = Conductor({0: 1, 2: 3}, [Death(6, 1)], 1, loops=max(1, script.count("job.epochs(")))
    together = run_script(source, tmp_path / "train.py", over)
    assert (alone.report, together.report) == ("", "")
    assert len(together.weights) == 3
    for weights in together.weights:
        for mine, theirs in zip(weights, alone.weights[0], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-4)
