"""What a set-up says while it takes its time: what would break for a newcomer is a silence of a minute, or a failure of
which nothing is seen.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient

PATIENTLY = Path(__file__).parents[2] / ".ci" / "patiently"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    line = [str(PATIENTLY), "setting up: all of it", *command]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=patient(30))


def test_a_stage_is_one_line_that_grows_while_it_lasts_whatever_the_command_writes() -> None:
    done = run("bash", "-c", "echo + a package; sleep 2.5; echo + another")
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    what, dots, seconds, unit = line.rsplit(" ", 3)
    assert (what, set(dots), unit, done.stderr) == ("setting up: all of it", {"."}, "s", "")
    assert len(dots) >= 2
    assert int(seconds) >= 2


@pytest.mark.parametrize("code", [1, 3, 127])
def test_a_stage_that_fails_shows_what_was_written_and_fails(code: int) -> None:
    done = run("bash", "-c", f"echo out; echo error >&2; exit {code}")
    assert (done.returncode, done.stderr) == (code, "out\nerror\n")
