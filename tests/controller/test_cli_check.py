"""What `dyntrain check` makes of what is typed.

What would break for a user: an option of their script that is taken for one of the check's.
"""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.training.trial import course
from dyntrain.training.trial.experiment import Options


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Options, bool]]:
    """What was to be tried, in place of trying it."""
    calls: list[tuple[Options, bool]] = []

    def run_experiment(options: Options, as_json: bool) -> int:
        calls.append((options, as_json))
        return 1

    monkeypatch.setattr(course, "run_experiment", run_experiment)
    return calls


def typed(line: str) -> Any:
    return CliRunner().invoke(main, ["check", *line.split()])


@pytest.mark.parametrize("dashes", ["-- ", ""])
def test_what_follows_the_command_is_the_scripts(experiments: list[tuple[Options, bool]], dashes: str) -> None:
    result = typed(f"--steps 5 --plan 3=3 {dashes}python train.py --steps 90 --json")
    (options, as_json), *more = experiments
    assert (result.exit_code, more, as_json) == (1, [], False), "the verdict's exit code"
    assert options.command == ("python", "train.py", "--steps", "90", "--json")
    assert (options.steps, str(options.plan)) == (5, "3=3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "put it after --"),
        ("--plan 3 -- python train.py", "words like 3=3"),
        ("--stepz 3 -- python train.py", "--steps"),
        ("--steps 0 -- python train.py", "0"),
    ],
)
def test_what_is_no_experiment_is_refused_before_anything_runs(
    experiments: list[tuple[Options, bool]], line: str, message: str
) -> None:
    result = typed(line)
    assert (result.exit_code, experiments) == (2, [])
    assert message in result.output


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        (["--explain", "DT301"], 0, "# DT301 (error)"),
        (["--explain"], 0, "DT101  error"),
        (["--explain", "DT999"], 2, "no rule has the code"),
    ],
)
def test_a_rules_page_is_found_by_its_code(typed: list[str], code: int, message: str) -> None:
    """Whoever reads a code in a worker's log learns what it means without the script."""
    done = CliRunner().invoke(main, ["check", *typed])
    assert (done.exit_code, message in done.output) == (code, True), done.output
