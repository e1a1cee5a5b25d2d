"""Whole jobs on real MXNet: joins, leaves and losses, proven by the ledger and by the process ids."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from job_bed import JobBed, instance

from training.generation import Limits
from training.roster import Budget

Make = Callable[..., JobBed]
TINY = str(Path(__file__).parent / "tiny_job.py")


def joined(bed: JobBed, letter: str) -> Callable[[], bool]:
    return lambda: any(event["instance"] == instance(letter) for event in bed.events("joined"))


def left(bed: JobBed, letter: str) -> Callable[[], bool]:
    return lambda: any(event["instance"] == instance(letter) for event in bed.events("left"))


def ready(bed: JobBed, letter: str) -> Callable[[], bool]:
    return lambda: any(event["instance"] == instance(letter) for event in bed.events("worker_ready"))


def start(bed: JobBed, base: str = "AB") -> None:
    for letter in base:
        bed.add_node(letter, base=True)
    bed.want(base)
    bed.wait_for(joined(bed, base[-1]), 60, "the first generation")


def test_t1_t2_t3_t6_workers_join_and_leave_and_no_sample_is_lost(make_bed: Make) -> None:
    bed = make_bed("--epochs", "40", "--step-seconds", "0.1")
    start(bed)
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(joined(bed, "C"), 60, "C joins at a boundary")
    bed.want("BC")  # T3: A held rank 0
    bed.wait_for(left(bed, "A"), 60, "A leaves")
    bed.add_node("D")
    bed.want("BD")  # T4: a swap
    bed.wait_for(joined(bed, "D"), 60, "D replaces C")
    swaps = [event for event in bed.events("forming") if event["joining"] == [instance("D")]]
    assert [event["leaving"] for event in swaps] == [[instance("C")]], "one boundary for both"
    bed.wait_until_over(120)
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 40)
    assert {name: len(node.pids) for name, node in bed.supervisors.items()} == {instance(letter): 1 for letter in "ABCD"}, "nobody was restarted"
    assert all(event["seconds"] < 30 for event in bed.events("pause")), "survivors said how long they paused"


def test_t14_mid_epoch_boundaries_take_every_sample_once(make_bed: Make) -> None:
    bed = make_bed("--epochs", "12", "--samples", "301", "--batch-size", "10", "--step-seconds", "0.1", segment_steps=4)
    start(bed, "A")
    bed.add_node("B")
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(joined(bed, "C"), 60, "C joins in mid-epoch")
    bed.want("AC")
    bed.wait_for(left(bed, "B"), 60, "B leaves in mid-epoch")
    bed.wait_until_over(120)
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 12)
    assert any(event["position"]["offset"] for event in bed.events("forming")), "at least one change fell inside an epoch"


def test_t7_t20_in_mode_restart_a_killed_worker_costs_the_epoch_and_no_sample(make_bed: Make) -> None:
    bed = make_bed("--epochs", "12", "--step-seconds", "0.15", recovery="restart")
    start(bed)
    bed.wait_for_epoch(3)
    killed = bed.kill_worker("B")
    bed.wait_for(lambda: bed.events("restart"), 30, "the loss is noticed")
    bed.wait_until_over(120)
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 12)
    assert killed not in bed.supervisors[instance("B")].pids[1:]
    resumed = bed.events("forming")[-1]
    assert resumed["position"]["epoch"] >= 2, "from the last commit, not from the beginning"


def test_t7_a_worker_that_raises_does_not_hang_the_job(make_bed: Make) -> None:
    bed = make_bed("--epochs", "4", "--fail-at", "10", "--step-seconds", "0.05", budget=Budget(restarts=1))
    start(bed)
    bed.wait_for(lambda: bed.events("given_up"), 110, "the budget of a worker that always fails ends")
    reason = bed.events("given_up")[0]["reason"]
    assert "failures in" in reason


def test_t9_a_joiner_killed_while_it_waits_leaves_the_others_alone(make_bed: Make) -> None:
    bed = make_bed("--epochs", "25", "--step-seconds", "0.1")
    start(bed)
    bed.add_node("C")
    bed.wait_for(ready(bed, "C"), 60, "C stands by")
    bed.kill_worker("C")
    bed.want("ABC")
    bed.wait_for(joined(bed, "C"), 60, "C's next process joins")
    bed.wait_until_over(120)
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "ABC"] == [1, 1, 2]
    assert bed.events("restart") == []
    assert bed.audit().exact


def test_a_hung_worker_is_noticed_at_the_boundary(make_bed: Make) -> None:
    bed = make_bed("--epochs", "8", "--step-seconds", "0.05", boundary_seconds=4.0)
    start(bed)
    bed.wait_for_epoch(1)
    bed.kill_worker("B", signal.SIGSTOP)
    event = bed.wait_for(lambda: bed.events("restart"), 60, "the hang is noticed")[0]
    bed.wait_until_over(120)
    assert instance("B") in event["reason"]
    assert bed.audit().exact


def test_t10_below_the_minimum_the_job_pauses_until_a_worker_comes(make_bed: Make) -> None:
    bed = make_bed("--epochs", "10", "--step-seconds", "0.1", limits=Limits(2, 4))
    start(bed)
    bed.want("A")
    bed.wait_for(lambda: bed.hosts.reports and "minimum" in bed.hosts.reports[-1].reason, 60, "the pause is reported")
    bed.add_node("C")
    bed.want("AC")
    bed.wait_until_over(120)
    assert joined(bed, "C")()
    assert bed.audit().exact


def test_t15_elastic_training_gives_the_weights_of_training_alone(make_bed: Make, tmp_path: Path) -> None:
    arguments = ["--epochs", "8", "--step-seconds", "0.1"]
    alone = tmp_path / "alone.npz"
    subprocess.run([sys.executable, TINY, "--epochs", "8", "--step-seconds", "0", "--weights", str(alone)], check=True, timeout=60)
    bed = make_bed(*arguments, "--weights", str(tmp_path / "elastic.npz"))
    start(bed)
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(joined(bed, "C"), 60, "C joins")
    bed.want("AC")
    bed.wait_until_over(120)
    bed.wait_for((tmp_path / "elastic.npz").exists, 30, "the weights")
    with np.load(alone) as one, np.load(tmp_path / "elastic.npz") as other:
        difference = max(float(np.abs(one[name] - other[name]).max()) for name in one.files)
    assert difference < 1e-5


def test_t7_a_killed_worker_costs_one_step_and_no_survivors_process(make_bed: Make) -> None:
    bed = make_bed("--epochs", "30", "--samples", "193", "--step-seconds", "0.05")
    start(bed)
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(joined(bed, "C"), 60, "C joins")
    for number in range(1, 4):
        time.sleep(0.3 + 0.17 * number)  # somewhere in an epoch
        bed.kill_worker("C")
        bed.wait_for(lambda number=number: len(bed.events("released")) == number, 20, "the survivors are free")
        again = number + 1
        bed.wait_for(lambda again=again: sum(e["instance"] == instance("C") for e in bed.events("joined")) == again, 60, "C is back")
    bed.wait_until_over(120)
    assert bed.events("restart") == []
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "ABC"] == [1, 1, 4]
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 30)
