"""The storm of a fault hunt on real processes: what it does to them, what it counts, and that nothing of it outlasts its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.local.chaos_plan import Cut, Freeze, Kill, Throttle, Victim
from controller.local.chaos_storm import Storm
from controller.local.disturbance import Disturbance


@pytest.fixture
def coordinator() -> Iterator[subprocess.Popen[bytes]]:
    """Taken for a coordinator by its command line."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()", "training.coordinator"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait(10)


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def storm() -> tuple[Storm, list[str]]:
    told: list[str] = []
    return Storm(Disturbance(1), None, told.append), told


def test_a_killed_process_is_gone_and_counted(coordinator: subprocess.Popen[bytes]) -> None:
    made, _ = storm()
    made.run([Kill(0.0, Victim.COORDINATOR, 0.99)], 0.1)
    assert coordinator.wait(10) == -9
    assert made.counts == {"coordinator killed": 1}


def test_a_fault_that_finds_no_victim_is_not_counted() -> None:
    made, _ = storm()
    made.run([Kill(0.0, Victim.COORDINATOR, 0.5), Freeze(0.0, Victim.WORKER, 0.5, 1.0), Cut(0.0, 0.5, 1.0)], 0.1)
    assert not made.counts


def test_a_frozen_process_is_not_frozen_twice_and_runs_again_at_the_end(coordinator: subprocess.Popen[bytes]) -> None:
    made, _ = storm()
    made.run([Freeze(0.0, Victim.COORDINATOR, 0.5, 60.0), Freeze(0.05, Victim.COORDINATOR, 0.5, 60.0)], 0.2)
    assert state(coordinator) == "T"
    made.end()
    assert state(coordinator) != "T"
    assert made.counts == {"coordinator frozen": 1}


def test_a_short_freeze_ends_during_the_storm(coordinator: subprocess.Popen[bytes]) -> None:
    made, told = storm()
    made.run([Freeze(0.0, Victim.COORDINATOR, 0.5, 0.1)], 0.5)
    assert state(coordinator) != "T"
    assert told[-1] == f"thawed {coordinator.pid}"


def test_disorder_and_throttling_end_with_the_storm() -> None:
    disturbance = Disturbance(1)
    made = Storm(disturbance, None, lambda _: None)
    made.run([Throttle(0.0, "ssm", 1.0, 60.0)], 0.1)
    assert disturbance.disorder.throttled == {"ssm": 1.0}
    assert disturbance.disorder.lost > 0
    made.end()
    assert (disturbance.disorder.throttled, disturbance.disorder.lost) == ({}, 0.0)
