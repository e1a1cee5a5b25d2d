"""A laptop draws a job's curves from its reports: what they carry stays small, and covers the whole job."""

from __future__ import annotations

import math

from dyntrain.controller.contract.job_history import HISTORY_BYTES
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import Position
from dyntrain.training.session.chronicle import Chronicle, eta_seconds
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.session import Session
from session_driver import A, B, Driver, announced


def segment(at: float, epoch: int, metrics: dict[str, float], workers: int = 2) -> events.Segment:
    start = Position(epoch=epoch, offset=0, step=10 * epoch)
    end = Position(epoch=epoch + 1, offset=0, step=10 * epoch + 10)
    return events.Segment(
        at=at,
        generation=1,
        workers=workers,
        start=start,
        end=end,
        epoch=epoch,
        samples=1000,
        seconds=2.0,
        pids={},
        metrics=metrics,
    )


def report_with(**more: object) -> JobReport:
    fields = {"cluster": "c", "job": "j", "state": "running", "started_at": 1.0, "sequence": 1, "generation": 1}
    return JobReport.model_validate({**fields, "revision": 1, "members": [], **more})


def test_the_history_of_a_long_job_with_endless_names_stays_within_its_bound_and_covers_all_of_it() -> None:
    chronicle = Chronicle()
    for epoch in range(2000):
        metrics = {f"{'é' * 200}{name}": math.pi * epoch for name in range(50)}
        chronicle.record_event(segment(100.0 + 10 * epoch, epoch, metrics))
        chronicle.record_event(
            events.WorkerLost(instance="i-0000000a", pid=1, reason="é" * 5000, at=101.0 + 10 * epoch)
        )
    history = chronicle.history()
    assert len(history.model_dump_json().encode()) <= HISTORY_BYTES
    assert history.counts == {"worker_lost": 2000}, "also those whose mark is not kept"
    assert history.points[-1].at == 100.0 + 10 * 1999
    assert history.points[0].at < 100.0 + 10 * 2000 * 0.2, "the beginning is still there"


def test_points_that_are_merged_stay_equally_far_apart_and_keep_rate_and_metrics() -> None:
    chronicle = Chronicle()
    for epoch in range(1000):
        chronicle.record_event(segment(10.0 * epoch, epoch, {"loss": 1.0 / (epoch + 1)}))
    gaps = [b.at - a.at for a, b in zip(chronicle.points, chronicle.points[1:], strict=False)]
    assert max(gaps) <= 4 * 1000 * 10 / len(chronicle.points)
    assert all(point.samples_per_second == 500.0 and "loss" in point.metrics for point in chronicle.points)


def test_a_loss_that_diverged_is_reported_and_does_not_spoil_the_report() -> None:
    chronicle = Chronicle.from_events([segment(5.0, 0, {"loss": math.nan, "accuracy": 0.5})])
    report = report_with().model_copy(update={"progress": chronicle.progress(0.5, 6.0), "history": chronicle.history()})
    read = JobReport.model_validate_json(report.model_dump_json())
    assert read == report
    assert read.progress is not None
    assert read.progress.metrics == {"loss": None, "accuracy": 0.5}


def test_a_history_of_a_later_version_is_passed_over_and_the_membership_beside_it_counts() -> None:
    member = {"instance_id": "i-0000000a", "rank": 0, "active": True, "joined_epoch": 0, "joined_at": 1.0}
    read = report_with(members=[member], history={"version": 2, "points": "elsewhere"}, progress={"version": 2})
    assert (read.history, read.progress) == (None, None)
    assert [m.instance_id for m in read.members] == ["i-0000000a"]


def test_a_job_that_goes_on_at_its_pace_is_over_when_it_said() -> None:
    chronicle = Chronicle()
    for second in range(0, 100, 5):
        chronicle.record_progress(float(second), second / 1000, 0, second, 2, 10.0)
    assert chronicle.progress(0.095, 95.0).eta_seconds == 905.0


def test_a_pause_makes_the_end_later_and_a_rollback_is_not_taken_for_speed() -> None:
    pace = [(0.0, 0.0), (10.0, 0.1), (20.0, 0.2)]
    running, stalled = eta_seconds(pace, 0.2, 20.0), eta_seconds(pace, 0.2, 60.0)
    assert running == 80.0
    assert stalled is not None
    assert stalled > 140.0
    chronicle = Chronicle()
    for at, fraction in [(0.0, 0.1), (10.0, 0.2), (20.0, 0.3), (30.0, 0.2), (40.0, 0.3)]:
        chronicle.record_progress(at, fraction, 0, 0, 1, 1.0)
    assert chronicle.progress(0.3, 40.0).eta_seconds == 140.0


def test_the_first_step_which_waits_for_everything_says_nothing_of_the_end() -> None:
    """A job of half an hour is not said to take a day and a half."""
    chronicle = Chronicle()
    chronicle.record_progress(0.0, 0.0, 0, 0, 1, 1.0)
    chronicle.record_progress(90.0, 0.001, 0, 1, 1, 1.0)
    assert chronicle.progress(0.001, 90.0).eta_seconds is None
    chronicle.record_progress(92.0, 0.002, 0, 2, 1, 1.0)
    assert chronicle.progress(0.002, 92.0).eta_seconds == 1996.0


def test_nothing_is_said_of_the_end_before_it_is_known_and_a_finished_job_is_over() -> None:
    assert Chronicle().progress(None, 1.0).fraction is None
    assert Chronicle().progress(0.5, 1.0).eta_seconds is None
    assert Chronicle().progress(1.0, 1.0).eta_seconds == 0.0


def test_pauses_are_marked_with_their_phases_and_added_up() -> None:
    pauses = [events.Pause(generation=n, seconds=0.5, phases={"create": 0.2}, at=float(n)) for n in (1, 2)]
    history = Chronicle.from_events(pauses).history()
    assert history.paused_seconds == 1.0
    assert [(mark.event, mark.generation, mark.phases) for mark in history.marks] == [
        ("pause", 1, {"create": 0.2}),
        ("pause", 2, {"create": 0.2}),
    ]


def test_a_finished_job_still_says_of_how_many_epochs_it_was() -> None:
    begun = journal.JobBegun(job="j", epochs=11, samples=20, global_batch=10, seed=0, batching="fixed-global", at=1.0)
    finished = journal.JobFinished(position=Position(epoch=11, offset=0, step=22), at=2.0)
    options = Options(cluster="c", job="j", started_at=1.0, limits=Limits(1, 4), workers=1)
    report = Session.restore(options, lambda: "transfer", [begun, finished], 3.0).report(3.0)
    assert (report.state, report.epoch, report.epochs) == ("finished", 11, 11)


def test_what_a_script_silences_is_announced_once_and_stays_in_what_is_known_of_the_job(driver: Driver) -> None:
    """Who looks at a job that trains otherwise wants to know which rules nobody was told of."""
    driver.train(A, B)
    for epoch in (1, 2):
        driver.check_in(A, B, epoch=epoch, silenced={"DT302": "train.py:31"})
    (silenced,) = announced(driver.orders, events.ChecksSilenced)
    assert silenced.rules == {"DT302": "train.py:31"}
    assert Chronicle.from_events([silenced]).progress(0.5, 1.0).silenced == {"DT302": "train.py:31"}
