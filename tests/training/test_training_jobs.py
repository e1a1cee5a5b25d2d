"""Whole jobs on real MXNet: joins, leaves and losses, proven by the ledger and by the process ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from job_bed import JobBed, instance

pytestmark = pytest.mark.jobs

Make = Callable[..., JobBed]


def test_t1_t2_t3_t6_workers_join_and_leave_and_no_sample_is_lost(make_bed: Make) -> None:
    bed = make_bed()
    bed.begin()
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(bed.saw("joined", "C"), 60, "C joins at a boundary")
    bed.want("BC")  # T3: A held rank 0
    bed.wait_for(bed.saw("left", "A"), 60, "A leaves")
    bed.add_node("D")
    bed.wait_for(bed.saw("worker_ready", "D"), 60, "D stands by")
    bed.want("BD")  # T4: a swap
    bed.wait_for(bed.saw("joined", "D"), 60, "D replaces C")
    swaps = [event for event in bed.events("forming") if event["joining"] == [instance("D")]]
    assert [event["leaving"] for event in swaps] == [[instance("C")]], "one boundary for both"
    # Before the job ends: it takes a while of steps until they are measured, and of seconds until they are reported.
    bed.wait_for(
        lambda: any(member.step_seconds for report in bed.hosts.reports for member in report.members),
        60,
        "who is slow is known",
    )
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)
    assert {name: len(node.pids) for name, node in bed.supervisors.items()} == {
        instance(letter): 1 for letter in "ABCD"
    }, "nobody was restarted"
    assert all(event["seconds"] < 30 for event in bed.events("pause")), "survivors said how long they paused"
    last = bed.hosts.reports[-1]  # what a laptop draws, without the volume
    assert last.progress is not None
    assert last.history is not None
    assert (last.progress.fraction, last.epochs) == (1.0, 80)
    assert {point.workers for point in last.history.points} >= {2, 3}
    assert last.history.counts["joined"] == len(bed.events("joined"))


def test_t14_mid_epoch_boundaries_take_every_sample_once(make_bed: Make) -> None:
    bed = make_bed(
        "--epochs", "20", "--samples", "301", "--batch-size", "10", workers=1, segment_steps=4, boundary="segment"
    )
    bed.begin("A")
    for letter in "BCD":
        bed.add_node(letter)
    for letter in "BCD":
        bed.wait_for(bed.saw("worker_ready", letter), 60, f"{letter} stands by")
    for wanted in ("ABCD", "AC", "ACD"):
        bed.want(wanted)
        bed.wait_for(
            lambda wanted=wanted: bed.events("formed") and len(bed.events("formed")[-1]["members"]) == len(wanted),
            60,
            f"{wanted} train",
        )
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 20)
    assert [len(event["members"]) for event in bed.events("formed")] == [1, 4, 2, 3]
    assert sum(bool(event["position"]["offset"]) for event in bed.events("forming")) >= 2, "changes fell inside epochs"


def test_t14_batching_per_worker_batches_change_the_steps_of_an_epoch_and_no_sample(make_bed: Make) -> None:
    bed = make_bed(
        "--epochs",
        "15",
        "--samples",
        "301",
        "--batch-size",
        "10",
        "--per-worker",
        workers=1,
        segment_steps=4,
        boundary="segment",
    )
    bed.begin("A")
    bed.add_node("B")
    bed.want("AB")
    bed.wait_for(bed.saw("joined", "B"), 60, "B joins in mid-epoch")
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 15)
    assert audit.epochs[14] == 16, "twice the workers, half the steps"
    assert audit.epochs[0] > 16
