"""The storm of a fault hunt on real processes: what it does to them, what it counts, and that nothing of it outlasts
its end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.controller.local.chaos.plan import (
    LinkCut,
    LinkSlowdown,
    ProcessFreeze,
    ProcessKill,
    ServiceThrottle,
    Victim,
    VolumeStall,
)
from dyntrain.controller.local.chaos.storm import FaultInjector
from dyntrain.controller.local.disturbance import Disturbance
from dyntrain.controller.local.pace import patient


@pytest.fixture
def coordinator() -> Iterator[subprocess.Popen[bytes]]:
    """Taken for a coordinator by its command line."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()", "dyntrain.training.coordinator"], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.wait(patient(10))


class KeptLinks:
    """Links that only remember what was done to them."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = list(hosts)
        self.down: set[str] = set()
        self.rates: dict[str, float] = {}

    def cut_link(self, host: str) -> bool:
        self.down.add(host)
        return True

    def mend_link(self, host: str) -> bool:
        self.down.remove(host)
        return True

    def slow_link(self, host: str, megabits: float) -> bool:
        self.rates[host] = megabits
        return True

    def speed_up_link(self, host: str) -> bool:
        del self.rates[host]
        return True


class KeptVolume:
    def __init__(self, *, can: bool = True) -> None:
        self.can, self.hangs = can, False

    def hang(self, seconds: float) -> bool:
        self.hangs = self.can and seconds > 0 and not self.hangs
        return self.hangs

    def resume(self) -> bool:
        did, self.hangs = self.hangs, False
        return did


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def new_storm() -> tuple[FaultInjector, list[str]]:
    lines: list[str] = []
    return FaultInjector(Disturbance(1), None, lines.append), lines


def test_a_killed_process_is_gone_and_counted(coordinator: subprocess.Popen[bytes]) -> None:
    storm, _ = new_storm()
    storm.run([ProcessKill(0.0, Victim.COORDINATOR, 0.99)], 0.1)
    assert coordinator.wait(patient(10)) == -9
    assert storm.fault_counts == {"coordinator killed": 1}


def test_a_fault_that_finds_no_victim_is_not_counted() -> None:
    storm, _ = new_storm()
    storm.run(
        [
            ProcessKill(0.0, Victim.COORDINATOR, 0.5),
            ProcessFreeze(0.0, Victim.WORKER, 0.5, 1.0),
            LinkCut(0.0, 0.5, 1.0),
        ],
        0.1,
    )
    assert not storm.fault_counts


def test_a_frozen_process_is_not_frozen_twice_and_runs_again_at_the_end(coordinator: subprocess.Popen[bytes]) -> None:
    storm, _ = new_storm()
    storm.run(
        [ProcessFreeze(0.0, Victim.COORDINATOR, 0.5, 60.0), ProcessFreeze(0.05, Victim.COORDINATOR, 0.5, 60.0)], 0.2
    )
    assert state(coordinator) == "T"
    storm.end_faults()
    assert state(coordinator) != "T"
    assert storm.fault_counts == {"coordinator frozen": 1}


def test_a_short_freeze_ends_during_the_storm(coordinator: subprocess.Popen[bytes]) -> None:
    storm, lines = new_storm()
    storm.run([ProcessFreeze(0.0, Victim.COORDINATOR, 0.5, 0.1)], 0.5)
    assert state(coordinator) != "T"
    assert lines[-1] == f"process {coordinator.pid} continues"


def test_disorder_and_throttling_end_with_the_storm() -> None:
    disturbance = Disturbance(1)
    storm = FaultInjector(disturbance, None, lambda _: None)
    storm.run([ServiceThrottle(0.0, "ssm", 1.0, 60.0)], 0.1)
    assert disturbance.rates.throttled == {"ssm": 1.0}
    assert disturbance.rates.lost > 0
    storm.end_faults()
    assert (disturbance.rates.throttled, disturbance.rates.lost) == ({}, 0.0)


def test_links_and_the_volume_are_struck_as_planned_and_right_again_at_the_end() -> None:
    links, volume, lines = KeptLinks("i-1", "i-2"), KeptVolume(), list[str]()
    storm = FaultInjector(Disturbance(1), links, lines.append, volume)
    cuts = [LinkCut(0.0, 0.0, 60.0), LinkCut(0.0, 0.0, 60.0), LinkCut(0.0, 0.0, 60.0)]
    storm.run([*cuts, LinkSlowdown(0.0, 0.99, 8.0, 60.0), VolumeStall(0.0, 60.0)], 0.1)
    assert (links.down, links.rates, volume.hangs) == ({"i-1", "i-2"}, {"i-2": 8.0}, True)
    assert storm.fault_counts == {"link cut": 2, "link slowed": 1, "volume stalled": 1}, "no link is cut twice"
    storm.end_faults()
    assert (links.down, links.rates, volume.hangs) == (set(), {}, False)
    assert lines[-4:] == [
        "i-1 is connected again",
        "i-2 is connected again",
        "the link of i-2 is fast again",
        "the volume accepts writes again",
    ]


def test_short_faults_of_links_and_volume_end_during_the_storm() -> None:
    links, volume = KeptLinks("i-1"), KeptVolume()
    storm = FaultInjector(Disturbance(1), links, lambda _: None, volume)
    storm.run([LinkCut(0.0, 0.5, 0.01), LinkSlowdown(0.0, 0.5, 8.0, 0.01), VolumeStall(0.0, 0.01)], 0.2)
    assert (links.down, links.rates, volume.hangs) == (set(), {}, False)
    assert storm.fault_counts == {"link cut": 1, "link slowed": 1, "volume stalled": 1}


def test_a_volume_that_does_not_hang_is_not_counted_as_stalled() -> None:
    storm = FaultInjector(Disturbance(1), None, lambda _: None, KeptVolume(can=False))
    storm.run([VolumeStall(0.0, 60.0)], 0.1)
    assert not storm.fault_counts
