"""A machine that stands still for a while fails no test, and a failure says how late the machine was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lateness
import pytest
from dyntrain.controller.local.pace import FRESH_SECONDS, RECENT_SECONDS, REFERENCE_SECONDS, Pace
from lateness import MOST, NAP, WINDOW, Lateness


class Machine:
    """Its naps take as long as a test says."""

    def __init__(self) -> None:
        self.now, self.nap = 100.0, NAP
        self.pace = Pace(lambda: REFERENCE_SECONDS, lambda: self.now)
        self.lateness = Lateness(self.pace, lambda: self.now, self._sleep)

    def _sleep(self, _: float) -> None:
        self.now += self.nap

    def naps(self, seconds: float, each: float = NAP) -> None:
        self.nap, end = each, self.now + seconds
        while self.now < end:
            self.lateness.nap()


def test_who_wakes_up_twice_as_late_has_twice_the_patience() -> None:
    machine = Machine()
    machine.naps(2 * WINDOW, each=2 * NAP)
    assert machine.pace.paced(10.0) == pytest.approx(20.0)


def test_an_idle_machine_has_no_more_patience_than_the_bounds_are_written_for() -> None:
    machine = Machine()
    machine.naps(3 * WINDOW)
    assert machine.pace.paced(10.0) == pytest.approx(10.0)


def test_a_machine_that_stood_still_is_not_taken_for_one_that_is_a_hundred_times_slower() -> None:
    machine = Machine()
    machine.naps(0.1, each=300.0)
    assert machine.pace.paced(1.0) == MOST
    machine.naps(RECENT_SECONDS + WINDOW)
    assert machine.pace.paced(1.0) == pytest.approx(1.0), "it was long ago"


def test_a_note_does_not_stand_in_for_a_measurement() -> None:
    """A busy machine wakes a thread that slept at once, and gives it little of the processor then."""
    machine = Machine()
    machine.pace.slowness()
    slow = Pace(lambda: 3 * REFERENCE_SECONDS, lambda: machine.now)
    slow.record_slowness(1.0)
    assert slow.slowness() == 3.0
    machine.now += FRESH_SECONDS + 1
    slow.record_slowness(5.0)
    assert slow.slowness() == 5.0


def test_the_time_that_a_test_stood_still_is_its_own() -> None:
    machine = Machine()
    machine.naps(0.1, each=4.0)
    machine.naps(0.5)
    began = machine.now
    machine.naps(1.0)
    assert machine.lateness.stood_still(began) == 0.0
    machine.naps(0.1, each=3.0)
    machine.naps(0.1, each=0.5)
    assert machine.lateness.stood_still(began) == pytest.approx(3.5, abs=3 * NAP)


TESTS = """
import pytest
@pytest.fixture
def broken():
    raise OSError("no such thing")
def test_wrong(): assert 1 == 2
def test_set_up(broken): pass
def test_right(): pass
"""


CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(lateness.__file__).parent)!r})
import lateness, pytest
def pytest_runtest_setup(item): lateness.begin(item)
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    lateness.tell(report, item)
    return report
def pytest_terminal_summary(terminalreporter): lateness.sum_up(terminalreporter)
"""


@pytest.mark.parametrize("spread", [(), ("-n", "2")])
def test_a_failure_says_how_late_the_machine_was_and_the_end_how_patient_the_run(
    tmp_path: Path, spread: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *spread]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.count("the machine stood still for 0.0 s in this test; patience 1.0") == 2, done.stdout
    assert "patience: median 1.0, most 1.0" in done.stdout  # nobody measures in this run
