"""The first batch, tried in parts before the first step: what adds up trains, what does not is refused in a sentence,
and what cannot be tried is said in the log.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import probed_scripts
import pytest
from dyntrain.controller.local.pace import patient
from probed_bed import ADDS_UP, DIFFERS, DRAWS, SCRIPTS, SILENCED, UNTRIED


def those_that(outcome: str) -> list[str]:
    return [name for name, (_, each, _) in SCRIPTS.items() if each == outcome]


Outcome = tuple[str | None, list[str]]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    done = subprocess.run(
        [sys.executable, probed_scripts.__file__], capture_output=True, text=True, timeout=patient(240), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = map(json.loads, done.stdout.splitlines())
    return {
        name: (raised, [re.sub(r"^\S+\.py:\d+: ", "", line) for line in messages if "DT604" not in line])
        for name, raised, messages in lines
    }


@pytest.mark.parametrize("name", those_that(DIFFERS))
def test_t2_what_each_share_has_another_number_of_is_refused(outcomes: dict[str, Outcome], name: str) -> None:
    raised, _ = outcomes[name]
    assert raised is not None
    assert "DT201: the gradient of " in raised


@pytest.mark.parametrize("name", those_that(ADDS_UP))
def test_what_adds_up_trains(outcomes: dict[str, Outcome], name: str) -> None:
    raised, messages = outcomes[name]
    assert raised is None
    assert [line.split(":")[0] for line in messages] == ["the first batch is probed"]


@pytest.mark.parametrize("name", those_that(DRAWS))
def test_a_number_that_each_worker_draws_anew_is_told(outcomes: dict[str, Outcome], name: str) -> None:
    raised, messages = outcomes[name]
    assert raised is None
    assert messages[0].startswith("the first batch is probed: ")
    assert messages[1].startswith(f"DT203: the script draws a number for its batch ({SCRIPTS[name][2]}), ")
    assert "epoch.random" in messages[1]


@pytest.mark.parametrize("name", those_that(UNTRIED))
def test_what_cannot_be_tried_is_said_and_trains(outcomes: dict[str, Outcome], name: str) -> None:
    raised, messages = outcomes[name]
    assert raised is None
    assert len(messages) == 1
    assert messages[0].startswith("DT202: the first batch is not probed: ")
    assert SCRIPTS[name][2] in messages[0]


@pytest.mark.parametrize("name", those_that(SILENCED))
def test_who_means_what_each_share_counts_says_so(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name] == (None, [])


def test_every_script_is_looked_at(outcomes: dict[str, Outcome]) -> None:
    assert set(outcomes) == set(SCRIPTS)
