"""What `make test` runs: everything once, side by side; and of at most eight tests that failed, each once more, alone,
in a process of its own.

    python tests/second_look.py [ARGUMENTS OF BOTH] -- [ARGUMENTS OF THE FIRST RUN]

A test that passed alone does not make the run red: it is named at the end, and in build/second-look.txt, with what it
said when it failed. That is for chance, which a busy machine has; a test that is named twice is to be mended. STRICT=1
has no second look.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

AT_MOST = 8
NOTED = Path("build/second-look.txt")
OPTION = "--note-failures"
XDIST = re.compile(r"\[gw\d+\] ")  # its line on which process it was stands before what became of that


@dataclass(frozen=True)
class Failure:
    test: str
    message: str


class Notes:
    """A pytest plugin that writes down what failed, a line each: a test once, with what it said first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed or report.nodeid in self._seen:
            return
        self._seen.add(report.nodeid)
        with self._path.open("a") as notes:
            notes.write(json.dumps({"test": report.nodeid, "message": first_line(report)}) + "\n")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, help="the file that has a line for each test that failed")


def note_failures(config: pytest.Config) -> None:
    notes = config.getoption(OPTION)
    if notes is not None and not hasattr(config, "workerinput"):  # the reports of xdist's processes come to the first
        config.pluginmanager.register(Notes(notes))


def first_line(report: pytest.TestReport) -> str:
    """What the test said when it failed, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None else report.longreprtext.strip()
    lines = [line for line in text.splitlines() if not XDIST.match(line)]
    return next(iter(lines), f"failed in its {report.when}")[:300]


def failures(notes: Path) -> list[Failure]:
    return [Failure(**json.loads(line)) for line in notes.read_text().splitlines()]


def run(both: Sequence[str], first: Sequence[str]) -> int:
    """The exit code for make. Anything but failed tests (an interruption, a file that cannot be collected) is pytest's
    own.
    """
    command = [sys.executable, "-m", "pytest", *both]
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "failures")
        notes.touch()
        code = subprocess.run([*command, f"{OPTION}={notes}", *first], check=False).returncode
        failed = failures(notes)
    say(f"{processor_minutes():.1f} minutes of processor")
    if code != pytest.ExitCode.TESTS_FAILED or not failed or os.environ.get("STRICT") == "1":
        return code
    if len(failed) > AT_MOST:
        say(f"{len(failed)} tests failed: too many for a second look, which {AT_MOST} have")
        return code
    again: list[Failure] = []
    for number, failure in enumerate(failed, 1):
        say(f"Second look, {number} of {len(failed)}: {failure.test}")
        if subprocess.run([*command, failure.test], check=False).returncode != pytest.ExitCode.OK:
            again.append(failure)
    tell([failure for failure in failed if failure not in again], again)
    return pytest.ExitCode.TESTS_FAILED if again else pytest.ExitCode.OK


def tell(passed: Sequence[Failure], again: Sequence[Failure]) -> None:
    if passed:
        say("Passed only alone")
        NOTED.parent.mkdir(parents=True, exist_ok=True)
        with NOTED.open("a") as noted:
            for failure in passed:
                say(f"passed only alone: {failure.test}: {failure.message}")
                noted.write(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} {failure.test}: {failure.message}\n")
    for failure in again:
        say(f"failed twice: {failure.test}: {failure.message}")


def processor_minutes() -> float:
    """Of all that was run, with what that has waited for in turn, user and system: as `time` says of the command."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) / 60


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    sys.exit(run(arguments[:split], arguments[split + 1 :]))
