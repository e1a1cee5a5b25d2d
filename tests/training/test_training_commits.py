"""Commits: if one is lost, half written or damaged, the job must say so, keep the one before, and never go on with the
wrong weights.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.contract.messages import Target
from dyntrain.training.audit import audit
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.coordinator.terms import read_journal
from dyntrain.training.journal import CommitWritten, Entry, GenerationSettled, JobFinished
from dyntrain.training.ledger import Intent
from dyntrain.training.protocol.messages import (
    CommitFailed,
    Committed,
    CommitUnreadable,
    Form,
    Formed,
    Position,
    Prepared,
    SafeCopy,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello, WorkerExited
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.job.trouble import RESTARTS
from dyntrain.training.session.orders import Announce, Journal, Order, StopCoordinator, ToWorker
from dyntrain.training.session.session import Session
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitDamaged, CommitStore
from job_bed import JobBed, instance
from pydantic import ValidationError

A = "i-0000000a"
WHO = {"cluster": "c", "instance_id": A, "private_ip": "10.0.0.1"}


def test_a_commit_reads_back_and_the_last_few_are_kept(tmp_path: Path) -> None:
    store = CommitStore(tmp_path / "commits")
    names = [store.write(step, 1, b"state %d" % step) for step in (5, 10, 15, 20)]
    assert store.read(names[-1]) == b"state 20"
    assert sorted(path.name for path in (tmp_path / "commits").iterdir()) == names[1:]


def test_what_a_worker_left_half_written_when_it_was_killed_does_not_stay_for_ever(tmp_path: Path) -> None:
    """A restart after each kill: on slow storage nearly every kill meets a commit that is being written."""
    torn = [tmp_path / f".{generation:06d}-000000000005.commit.{100 + generation}" for generation in (1, 2, 3)]
    for path in torn:
        path.write_bytes(b"half")
    CommitStore(tmp_path).write(10, 3, b"whole")
    assert [path.exists() for path in torn] == [False, True, True], (
        "of the last two generations somebody may still be writing"
    )


def test_a_commit_after_going_back_is_newer_than_those_it_went_back_over(tmp_path: Path) -> None:
    """Kept by their steps, the commit of a job that went back to step 5 would be the first to be deleted."""
    store = CommitStore(tmp_path)
    for step in (5, 10, 15, 20):
        store.write(step, 1, b"before")
    name = store.write(7, 2, b"after")
    assert store.read(name) == b"after"


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.write_bytes(b"\0" * 40), lambda path: path.write_bytes(b""), lambda path: path.unlink()],
)
def test_a_damaged_commit_is_reported_and_never_replaced_by_another_state(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store = CommitStore(tmp_path)
    before, name = store.write(5, 1, b"old"), store.write(10, 1, b"new")
    damage(tmp_path / name)
    with pytest.raises(CommitDamaged, match=name):
        store.read(name)
    assert store.read(before) == b"old"


def test_t19_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="checkpoint-dir"):
        CommitStore(tmp_path / "file" / "commits")
    store = CommitStore(tmp_path / "commits")
    name = store.write(5, 1, b"good")
    (tmp_path / "commits").rename(tmp_path / "away")
    (tmp_path / "commits").write_text("")
    with pytest.raises(CheckpointError, match="Repair the directory") as caught:
        store.read(name)
    assert not isinstance(caught.value, CommitDamaged), "a volume that is away for a moment is no reason to go back"


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes: a write fails in the middle, as on a full disk.

    Not for longer than needed: pytest writes to files, too.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_t19_a_write_that_fails_half_way_leaves_the_commit_before_intact(tmp_path: Path) -> None:
    store = CommitStore(tmp_path)
    name = store.write(5, 1, b"good")
    with pytest.raises(CheckpointError, match="previous commit is intact"), small_disk(4096):
        store.write(10, 1, b"x" * 8192)
    assert store.read(name) == b"good"
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing half written stays"


# ---- what the coordinator makes of it


class Coordinated:
    """A session with one worker, and what it orders."""

    def __init__(self, journal: list[Entry] | None = None) -> None:
        self.now, self.journal = 100.0, list(journal or [])
        options = Options(
            cluster="c", job="j", started_at=1.0, limits=Limits(1, 4), workers=1, checkpoint_dir="/commits"
        )
        self.session = Session.restore(options, lambda: "transfer", self.journal, self.now)
        self.do("new_target", Target.of(1, (A,)))
        self.do("node_connected", NodeHello(**WHO, attempt=1, base=True))

    def do(self, method: str, *arguments: Any) -> list[Order]:
        orders: list[Order] = getattr(self.session, method)(*arguments, self.now)
        self.journal += [order.entry for order in orders if isinstance(order, Journal)]
        return orders

    def start(self, pid: int, safe: SafeCopy | None = None) -> Form:
        """A worker comes, and the generation that it is told to form."""
        self.do("group_ready", A, GroupReady(scheduler_port=10_000, blanks=2))
        hello = WorkerHello(
            cluster="c",
            instance_id=A,
            private_ip="10.0.0.1",
            pid=pid,
            state_port=9,
            epochs=9,
            samples=20,
            global_batch=10,
            seed=0,
            layout="x",
            safe=safe,
        )
        orders = self.do("worker_connected", hello)
        self.now += 35  # beyond the pause after several restarts
        return self._form_in(orders + self.do("tick"))

    def again(self) -> Form:
        """What the worker that could not prepare is told to form instead, once there are ps-lite processes."""
        return self._form_in(self.do("group_ready", A, GroupReady(scheduler_port=10_000, blanks=2)))

    @staticmethod
    def _form_in(orders: list[Order]) -> Form:
        return next(
            order.message for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Form)
        )

    def form(self) -> None:
        self.do("worker_prepared", A, Prepared(generation=self.session.job.number))
        self.do("worker_formed", A, Formed(generation=self.session.job.number, digest="d"))
        assert self.session.job.phase is Phase.TRAINING

    def commit(self, epoch: int, name: str) -> None:
        position = Position(epoch=epoch, offset=0, step=2 * epoch)
        self.do("commit_written", A, Committed(generation=self.session.job.number, position=position, name=name))

    def unreadable(self, name: str, generation: int | None = None) -> list[Order]:
        message = CommitUnreadable(
            generation=generation or self.session.job.number, name=name, reason=f"{name} is damaged"
        )
        return self.do("commit_unreadable", A, message)

    def lose(self, pid: int) -> None:
        self.do("worker_exited", A, WorkerExited(pid=pid, code=-9, reason="killed"))


def test_a_damaged_newest_commit_leads_to_the_one_before_at_its_own_position() -> None:
    job = Coordinated()
    assert job.start(1).checkpoint_dir == "/commits"
    job.form()
    for epoch in range(4):
        job.commit(epoch, f"c{epoch}")
    job.lose(1)
    assert (job.start(2).commit, job.session.job.position.epoch) == ("c3", 3)
    announcements = [order for order in job.unreadable("c3") if isinstance(order, Announce)]
    assert [order.event.event for order in announcements] == ["commit_unreadable", "taken_back"], "nobody is restarted"
    again = job.again()
    assert (again.commit, again.position) == ("c2", Position(epoch=2, offset=0, step=4))
    assert job.unreadable("c3", generation=2) == [], "a word that comes late or twice"
    revived = Coordinated(job.journal)
    assert revived.session.job.commit is not None
    assert revived.session.job.commit[1] == "c2", "a coordinator that comes back knows it too"


def test_when_no_commit_can_be_read_a_safe_state_is_taken_though_it_is_no_further() -> None:
    job = Coordinated()
    job.start(1)
    job.form()
    job.commit(2, "c2")
    job.lose(1)
    safe = SafeCopy(generation=1, position=Position(epoch=2, offset=0, step=4), name="5f")
    assert job.start(2, safe).commit == "c2"
    job.unreadable("c2")
    again = job.again()
    assert (again.commit, again.safe, again.position) == (None, "5f", safe.position)


def test_restarts_that_get_further_do_not_end_the_job_though_no_commit_is_written() -> None:
    job = Coordinated()
    for pid in range(1, 2 * RESTARTS):
        position = Position(epoch=pid, offset=0, step=2 * pid)
        job.start(pid, SafeCopy(generation=pid - 1, position=position, name=f"{pid}") if pid > 1 else None)
        job.form()
        job.lose(pid)
        job.now += 3600  # its node's failures are long ago
    assert job.session.job.phase is Phase.WAITING


def test_when_no_commit_can_be_read_the_job_fails_and_says_so_instead_of_beginning_again() -> None:
    job = Coordinated()
    job.start(1)
    job.form()
    for epoch in range(5):
        job.commit(epoch, f"c{epoch}")
    job.lose(1)
    assert job.start(2).commit == "c4"
    for name, before in (("c4", "c3"), ("c3", "c2")):
        job.unreadable(name)
        assert job.again().commit == before, "of the three that are kept"
    orders = job.unreadable("c2")
    assert any(isinstance(order, StopCoordinator) for order in orders)
    assert "no readable commit" in next(
        order.event.reason for order in orders if isinstance(order, Announce) and order.event.event == "failed"
    )


def test_t19_a_commit_that_cannot_be_written_is_told_and_training_goes_on_over_the_one_before() -> None:
    job = Coordinated()
    job.start(1)
    job.form()
    job.commit(1, "c1")
    failed = CommitFailed(
        generation=1,
        position=Position(epoch=2, offset=0, step=4),
        reason="commit c2 in /commits: No space left on device",
    )
    orders = job.do("commit_failed", A, failed)
    assert [(order.event.event, describe(order.event)) for order in orders if isinstance(order, Announce)] == [
        (
            "commit_failed",
            "training goes on, but step 4 is not committed: commit c2 in /commits: No space left on device",
        )
    ]
    assert job.session.job.phase is Phase.TRAINING
    job.lose(1)
    assert job.start(2).commit == "c1"


def test_generations_that_start_at_one_position_commit_it_anew() -> None:
    """Old commits are deleted by their generation: going on to name the first of one position would name a deleted
    file.
    """
    job = Coordinated()
    job.start(1)
    job.form()
    for generation in range(2, 7):
        job.commit(3, f"c{generation}")
        job.lose(generation - 1)
        assert job.start(generation).commit == f"c{generation}"
        job.form()


def test_what_was_trained_after_a_damaged_commit_does_not_count_in_the_audit() -> None:
    def settled(number: int, step: int) -> GenerationSettled:
        at = Position(epoch=0, offset=step, step=step)
        return GenerationSettled(number=number, members=(A,), position=at, at=0.0, pids={A: 1}, holders=(), hosts={})

    end = JobFinished(position=Position(epoch=1, offset=0, step=4), at=0.0)
    journal = [settled(1, 0), settled(2, 3), settled(3, 1), end]
    first = [{"g": 1, "e": 0, "o": step, "s": step, "i": [step]} for step in range(3)]
    last = [{"g": 3, "e": 0, "o": step, "s": step, "i": [step]} for step in range(1, 4)]
    result = audit(journal, map(Intent.model_validate, first + last), samples=4)
    assert (result.lost, result.doubled, result.void_intents) == (0, 0, 2)
    assert audit(journal, map(Intent.model_validate, first), samples=4).lost == 3, (
        "the steps that were void are not taken for trained"
    )


# ---- and a whole job


@pytest.mark.jobs
def test_t20_a_job_goes_on_at_the_committed_sample_with_other_workers_and_past_a_damaged_commit(
    make_bed: Callable[..., JobBed], tmp_path: Path
) -> None:
    commits = tmp_path / "elsewhere"
    options = {"segment_steps": 3, "checkpoint_dir": str(commits)}
    arguments = ["--epochs", "3", "--samples", "301", "--batch-size", "10", "--step-seconds", "0.05"]

    def mid_epoch(bed: JobBed) -> bool:
        return any(event["to"]["step"] > 5 and event["to"]["offset"] > 60 for event in bed.events("segment"))

    bed = make_bed(*arguments, **options)
    bed.begin("AB")
    bed.wait_for(lambda: mid_epoch(bed), 60, "a segment in mid-epoch")
    bed.close()
    last = len(bed.events("forming"))
    newest = commits / [entry.name for entry in read_journal(bed.job.ledger) if isinstance(entry, CommitWritten)][-1]
    newest.write_bytes(newest.read_bytes()[:-1])

    bed = make_bed(*arguments, workers=1, **options)
    bed.add_node("A", base=True)
    bed.want("A")
    bed.finish()
    damaged = bed.events("commit_unreadable")
    assert [event["name"] for event in damaged] == [newest.name]
    resumed = bed.events("forming")[-1]
    assert len(bed.events("forming")) > last
    assert resumed["position"] == damaged[0]["instead"]
    assert resumed["position"]["offset"], "not from the epoch's start"
    assert resumed["members"] == [instance("A")]
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 3)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", ".hidden", "a/b", "n" * 101, "1-4.commit\n"])
def test_a_commit_cannot_be_named_out_of_the_commits_folder(name: str) -> None:
    """A worker names it, the coordinator has another worker open it."""
    with pytest.raises(ValidationError):
        Committed(generation=1, position=Position(epoch=0, offset=0, step=4), name=name)
    assert Committed(generation=1, position=Position(epoch=0, offset=0, step=4), name="1-4.commit").name == "1-4.commit"
