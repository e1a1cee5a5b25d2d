"""The pages of the rules: each rule has one, its bad example is told of, and its good one trains over workers that
come and die as in one process. Advice that is wrong would cost its reader more than none.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rule_examples
from conducted import Conductor, Death
from dyntrain.controller.local.pace import patient
from dyntrain.training.checks.explain import PAGES_FOLDER, explain
from dyntrain.training.checks.rules import RULES
from rule_examples import KINDS, OneProcess, examples, run

CODES = sorted(page.stem for page in PAGES_FOLDER.glob("*.md"))
PROBED = ["DT201", "DT202", "DT203"]  # what the trial of the first batch finds, in a process of its own
WORKERS = {  # from which step on, where one alone does not show it
    "DT402": {0: 3},
    "DT404": {0: 7},
    "DT405": {0: 3},
    "DT411": {0: 2},
    "DT412": {0: 2},
    "DT413": {0: 1, 4: 2},
}
LOOPS = {"DT612": 2}
OTHERWISE = {  # in one process the bad one trains to other weights
    "DT109",  # another loss
    "DT202",  # other draws
    "DT203",
    "DT406",  # divides by 0
    "DT508",  # BatchNorm goes on
    "DT601",  # ends elsewhere
}
MOST_LINES = 16


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What was told of each of their examples."""
    command = [sys.executable, rule_examples.__file__, str(tmp_path_factory.mktemp("probed")), *PROBED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {(code, kind): report for code, kind, report in map(json.loads, done.stdout.splitlines())}


def test_every_rule_has_a_page_and_every_page_is_a_rules() -> None:
    assert set(CODES) == set(RULES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_rules_sentence_as_its_title_a_reason_and_two_short_examples(code: str) -> None:
    title, _, body = (PAGES_FOLDER / f"{code}.md").read_text(encoding="utf-8").partition("\n\n")
    literal = re.split(r"\{[^{}]+\}", RULES[code].sentence)
    assert re.fullmatch(f"# {code}: " + ".+".join(map(re.escape, literal)), title)
    assert len(body.partition("\n\nBad:\n")[0].split()) > 20, "why"
    trees = [ast.dump(ast.parse(example)) for example in examples(code).values()]
    assert trees[0] != trees[1]
    assert max(example.count("\n") for example in examples(code).values()) <= MOST_LINES


@pytest.mark.parametrize("code", CODES)
def test_what_a_person_is_shown_has_the_page_and_how_to_read_its_examples(code: str) -> None:
    shown = explain(code)
    assert all(example in shown for example in examples(code).values())
    assert "above an empty line" in shown


@pytest.mark.parametrize("code", CODES)
def test_the_bad_example_is_told_of_by_its_code(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if code in PROBED:
        report = request.getfixturevalue("probed")[code, "bad"]
    else:
        plan = WORKERS.get(code)
        report = run(code, "bad", tmp_path, Conductor(plan, segment_steps=None) if plan else None).report
    assert re.search(rf"\.py:\d+: {code}: ", report), report


@pytest.mark.parametrize("code", CODES)
def test_t2_the_good_example_is_told_of_nothing_and_trains_as_the_bad_one_does_in_one_process(
    code: str, tmp_path: Path
) -> None:
    """Over workers that come and die."""
    alone = run(code, "good", tmp_path)
    over = Conductor({0: 1, 2: 3}, [Death(3, 1)], 1, loops=LOOPS.get(code, 1))
    together = run(code, "good", tmp_path, over)
    assert (alone.report, together.report) == ("", "")
    before = alone if code in OTHERWISE else run(code, "bad", tmp_path, OneProcess())
    assert len(together.weights) == 3
    for weights in (*alone.weights, *together.weights):
        for mine, theirs in zip(weights, before.weights[0], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("code", WORKERS)
def test_the_good_example_is_told_of_nothing_where_the_bad_one_is(code: str, tmp_path: Path) -> None:
    assert run(code, "good", tmp_path, Conductor(WORKERS[code], segment_steps=None)).report == ""


@pytest.mark.parametrize("code", PROBED)
def test_the_trial_of_the_first_batch_has_nothing_against_the_good_example(
    code: str, probed: dict[tuple[str, str], str]
) -> None:
    assert probed[code, "good"] == ""


def test_each_kind_is_run() -> None:
    assert KINDS == ("bad", "good")
    assert set(PROBED) | set(WORKERS) | set(LOOPS) | OTHERWISE <= set(CODES)
