"""Whole jobs on real MXNet whose coordinator is killed: it comes back with its journal, and the workers go on in their
processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_bed import HOLD, instance
from killable_bed import KillableBed

pytestmark = pytest.mark.jobs

TINY = str(Path(__file__).parent / "tiny_job.py")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[KillableBed]:
    bed = KillableBed(tmp_path, [sys.executable, TINY, "--hold", str(tmp_path / HOLD)])
    yield bed
    bed.close()


def processes(bed: KillableBed) -> dict[str, int]:
    return {name: len(node.pids) for name, node in bed.supervisors.items()}


def test_t17_a_coordinator_killed_in_mid_epoch_and_again_while_a_change_is_formed_comes_back(bed: KillableBed) -> None:
    """In mid-epoch no worker notices; an unfinished change is taken back or goes on."""
    bed.begin()
    bed.wait_for_epoch(2)
    bed.kill_coordinator()
    bed.start_coordinator()
    bed.wait_for(lambda: bed.events("recovered"), 60, "the coordinator goes on")
    bed.add_node("C")
    bed.wait_for(bed.saw("worker_ready", "C"), 60, "C stands by")
    assert processes(bed) == {instance(letter): 1 for letter in "ABC"}
    assert (bed.events("restart"), bed.events("releasing"), len(bed.events("forming"))) == ([], [], 1)
    bed.want("ABC")
    bed.wait_for(lambda: len(bed.events("forming")) == 2, 60, "the change is ordered")
    bed.kill_coordinator()
    bed.start_coordinator()
    bed.wait_for(bed.saw("joined", "C"), 60, "C joins all the same")
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)


def test_t17_t7_a_worker_that_dies_while_there_is_no_coordinator_costs_one_step(bed: KillableBed) -> None:
    bed.begin("ABC")
    bed.wait_for_epoch(2)
    bed.kill_coordinator()
    bed.kill_worker("C")
    bed.start_coordinator()
    bed.wait_for(lambda: bed.events("released"), 60, "the survivors are free")
    bed.finish()
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "AB"] == [1, 1]
    assert bed.audit().exact
