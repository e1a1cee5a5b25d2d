"""`dyntrain check` as people use it, on scripts that are right, wrong, or another one each time.

What would break for a user: machines that are rented for a script that trains otherwise, or a right one that is kept
from them; processes and files that stay behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from waiting import wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.timeout(600)]
SCRIPT = str(Path(__file__).parent / "tried_script.py")
ROOT = Path(__file__).parents[2]


class Check:
    """A process, in a folder of its own, with a folder for what is temporary."""

    def __init__(self, folder: Path, how: str, *options: str) -> None:
        self.folder, self.temporary = folder / "here", folder / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        self._log = (folder / "log").open("wb")
        command = [sys.executable, "-m", "dyntrain", "check", "--json", *options, "--", "python", SCRIPT, how]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def verdict(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and what is told."""
        output, _ = self.process.communicate(timeout=patient(300))
        assert output, self.log
        assert self.left() == []
        assert [*self.folder.iterdir()] == [], "the job's own files are elsewhere"
        return self.process.returncode, json.loads(output)

    def left(self) -> list[str]:
        """Processes that work where the script was started."""
        commands = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").resolve() == self.folder.resolve():
                    commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return commands

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(patient(30))
        self._log.close()


@pytest.fixture
def check(tmp_path: Path) -> Any:
    checks: list[Check] = []

    def make(how: str, *options: str) -> Check:
        checks.append(Check(tmp_path, how, *options))
        return checks[-1]

    yield make
    for each in checks:
        each.close()


def test_a_right_script_trains_the_same_through_joins_a_kill_a_leave_and_between_two_loops(check: Any) -> None:
    """With Dropout, BatchNorm and noise, whose draws and statistics are each worker's own by design, and an average
    that it keeps, and saves.
    """
    run = check("layers", "--steps", "6")
    code, answer = run.verdict()
    assert code == 0, (answer, run.log)
    assert answer["verdict"] == "same"
    assert (answer["steps"], answer["kills"]) == (12, 1)
    assert answer["changes"] >= 4, "one to three, a loss, a leave, a change between the loops"
    assert 0 < answer["difference"] < 1e-5
    assert [*run.temporary.iterdir()] == []
    assert f"--plan '{answer['plan']}' --seed 0" in run.log


@pytest.mark.parametrize(("how", "plan"), [("scaled", "2=2"), ("share", "2=3")])
def test_a_script_that_trains_otherwise_is_told_with_the_step_and_the_parameter(
    check: Any, how: str, plan: str
) -> None:
    """Its loss is multiplied by the workers, or weighed by classes that are counted in this worker's samples."""
    run = check(how, "--steps", "4", "--plan", plan)
    code, answer = run.verdict()
    assert code == 1, (answer, run.log)
    assert (answer["verdict"], answer["step"], answer["plan"]) == ("parts", 3, plan)
    assert answer["parameter"] in ("dense0_weight", "dense0_bias", "dense1_weight", "dense1_bias")
    assert answer["difference"] > 1000 * answer["rounding"]
    assert "`" + answer["parameter"] + "`" in answer["sentence"]
    assert all(Path(log).exists() for log in answer["logs"])
    assert "the script is at its end" in Path(answer["logs"][0]).read_text()


def test_an_average_that_is_saved_and_was_begun_anew_by_who_joined_is_told_by_its_file_and_name(check: Any) -> None:
    """No weight of the net shows it."""
    run = check("average", "--steps", "5", "--plan", "1=3 3=kill0")
    code, answer = run.verdict()
    assert code == 1, (answer, run.log)
    assert answer["sentence"].startswith("trains the same, but a worker that joined saves another `average.params` (")
    assert "`average`" in answer["others"]


@pytest.mark.parametrize(
    ("how", "plan", "verdict", "others", "code"),
    [
        ("teacher", "7=3 9=2", "parts at step 8", "`teacher`", None),
        ("unset", "9=3", "but a worker's script has failed: UnboundLocalError", "", None),
        ("clip", "7=3", "parts at step 8", "", "DT301"),
        ("zero", "7=3", "is refused before it can be compared: ", "", "DT401"),
    ],
)
def test_why_a_script_trains_otherwise_is_told_by_variables_errors_and_findings_of_rules(
    check: Any, how: str, plan: str, verdict: str, others: str, code: str | None
) -> None:
    """A teacher that is set where an epoch ends; what a loop alone sets; a clip before the sum; no batch size."""
    run = check(how, "--steps", "9", "--plan", plan)
    exit_code, answer = run.verdict()
    assert exit_code == 1, (answer, run.log)
    assert verdict in answer["sentence"]
    assert others in answer["others"]
    sentences = [answer["sentence"], *answer["findings"]]
    assert code is None or any(re.search(rf"tried_script\.py:\d+: {code}: ", each) for each in sentences)


def test_draws_that_cannot_be_made_alike_are_not_taken_for_a_mistake(check: Any) -> None:
    code, answer = check("noise", "--steps", "3", "--plan", "1=2").verdict()
    assert code == 2, answer
    assert "each worker draws its own" in answer["sentence"]


@pytest.mark.parametrize(
    ("how", "reason"), [("unseeded", "not the same twice in one process"), ("never", "ElasticJob.join()")]
)
def test_a_script_that_cannot_be_compared_is_told_why(check: Any, how: str, reason: str) -> None:
    code, answer = check(how, "--steps", "3").verdict()
    assert code == 2, answer
    assert reason in answer["sentence"]


@pytest.mark.parametrize(
    ("how", "until", "number"),
    [
        ("slow", "step 0", signal.SIGTERM),
        ("slow", "step 0", signal.SIGKILL),
        ("right", "1 worker", signal.SIGINT),
        ("right", "1 worker", signal.SIGKILL),
    ],
)
def test_an_end_at_any_time_leaves_no_process_behind(check: Any, how: str, until: str, number: int) -> None:
    run = check(how, "--plan", "1=2 2=3")
    wait_for(lambda: until in run.log, 120.0, lambda: run.log)
    assert len(run.left()) > 2, "itself, the process below it, the script"
    run.process.send_signal(number)
    code = run.process.wait(patient(60))
    wait_for(lambda: not run.left(), 30.0, lambda: str(run.left()))
    if number != signal.SIGKILL:
        assert code == 130
        assert [*run.temporary.iterdir()] == [], "nor a file"


def test_a_run_that_takes_too_long_is_ended(check: Any) -> None:
    run = check("slow", "--seconds", "15")
    code, answer = run.verdict()
    assert code == 2, answer
    assert "did not end within 15 s" in answer["sentence"]
