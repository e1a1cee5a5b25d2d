"""Whole jobs on real MXNet that lose workers: nothing hangs, no sample is lost, and survivors keep their processes
where they can.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import paced
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.session.job.roster import FailureBudget
from job_bed import JobBed, instance

pytestmark = pytest.mark.jobs

Make = Callable[..., JobBed]


def test_t7_t20_in_mode_restart_a_killed_worker_costs_the_epoch_and_no_sample(make_bed: Make) -> None:
    bed = make_bed(recovery="restart")
    bed.begin()
    bed.wait_for_epoch(3)
    killed = bed.kill_worker("B")
    bed.wait_for(lambda: bed.events("restart"), 30, "the loss is noticed")
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)
    assert killed not in bed.supervisors[instance("B")].pids[1:]
    resumed = bed.events("forming")[-1]
    assert resumed["position"]["epoch"] >= 2, "from the last commit, not from the beginning"


def test_t7_a_restart_goes_on_from_the_last_boundary_while_the_storage_of_the_commits_is_broken(
    make_bed: Make, tmp_path: Path
) -> None:
    """Nor does it go back further where a commit takes longer than a segment."""
    bed = make_bed("--orders", str(tmp_path), recovery="restart")
    bed.begin()
    commits = bed.job.commits
    bed.wait_for(lambda: list(commits.glob("*.commit")), 60, "the first commit")
    commits.rename(tmp_path / "away")
    commits.touch()
    bed.wait_for(lambda: len(bed.events("commit_failed")) >= 3, 60, "no commit can be written any more")
    (tmp_path / "gate").touch()
    bed.wait_for(
        lambda: list(tmp_path.glob("at-the-gate.*")), 30, "one is inside a step, which the other cannot end without it"
    )
    commits.unlink()
    (tmp_path / "away").rename(commits)
    reached = bed.events("segment")[-1]["to"]
    bed.kill_worker("B")
    bed.wait_for(lambda: bed.events("restart"), 30, "the loss is noticed")
    (tmp_path / "gate").unlink()
    bed.finish()
    resumed = bed.events("forming")[-1]
    assert (resumed["position"], resumed["commit"]) == (reached, None)
    assert resumed["safe"] is not None
    assert bed.audit().exact


def test_t7_a_worker_that_raises_does_not_hang_the_job(make_bed: Make) -> None:
    bed = make_bed("--fail-at", "10", budget=FailureBudget(restarts=1))
    bed.begin()
    bed.wait_for(lambda: bed.events("cooling_down"), 110, "the budget of a worker that always fails ends")
    reason = bed.events("cooling_down")[0]["reason"]
    assert "failures in" in reason


@pytest.mark.timeout(240)
def test_t9_t7_a_worker_lost_while_it_waits_while_it_trains_and_by_a_stop_costs_the_others_a_step_at_most(
    make_bed: Make,
) -> None:
    bed = make_bed(
        "--samples", "193", "--step-seconds", "0.1", clocks=Clocks(liveness=paced(8.0), progress=paced(600.0))
    )
    bed.begin()
    bed.add_node("C")
    bed.wait_for(bed.saw("worker_ready", "C"), 60, "C stands by")
    bed.kill_worker("C")
    bed.want("ABC")
    bed.wait_for(bed.saw("joined", "C"), 60, "C's next process joins")
    waiting = bed.events("releasing")
    for number, signum in enumerate((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP), start=1):
        time.sleep(0.3 + 0.17 * number)  # somewhere in an epoch
        bed.kill_worker("C", signum)
        bed.wait_for(
            lambda number=number: len(bed.events("released")) == number,
            40,
            "the loss is noticed, and the survivors are free",
        )
        again = number + 1
        bed.wait_for(
            lambda again=again: sum(e["instance"] == instance("C") for e in bed.events("joined")) == again,
            60,
            "C is back",
        )
    bed.finish()
    assert waiting == [], "one that waits is missed by nobody"
    assert bed.events("restart") == []
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "ABC"] == [1, 1, 5]
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)
