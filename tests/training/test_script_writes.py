"""Files that are for all are written by one worker: by nobody, a job's best parameters are lost; by several at once,
they are torn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import idioms
import pytest
from dyntrain.training.job import ElasticJob
from dyntrain.training.journal import JobFinished
from dyntrain.training.protocol.messages import Leave, Position, StepStatus
from dyntrain.training.session.orders import Journal, Order, ToWorker
from dyntrain.training.worker.membership.coordinated import CoordinatedMembership
from idioms import EPOCHS, SAMPLES
from job_bed import JobBed
from session_driver import A, B, C, Driver, come_back

PER_EPOCH = -(-SAMPLES // idioms.BATCH)
END = Position(epoch=3, offset=0, step=6)


def writers(orders: list[Order]) -> list[str]:
    leaves = [order for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Leave)]
    return [order.instance_id for order in leaves if isinstance(order.message, Leave) and order.message.writes]


def test_after_the_loop_worker_0_writes(three: Driver) -> None:
    assert writers(three.check_in(A, B, C, epoch=3)) == [A]


def test_after_the_loop_another_writes_where_worker_0_was_lost_in_the_last_step(three: Driver) -> None:
    """Its number goes to nobody, as no generation follows."""
    three.exits(A)
    orders = [
        order
        for name in (B, C)
        for order in three.do("step_status", name, StepStatus(generation=1, phase="out", position=END, answered=0))
    ]
    assert writers(orders) == [B]


def test_t17_a_coordinator_that_came_back_names_the_same(three: Driver) -> None:
    three.check_in(A, B, C, epoch=3)
    entries = [order.entry for order in three.orders if isinstance(order, Journal)]
    assert [entry.writer for entry in entries if isinstance(entry, JobFinished)] == [A]
    come_back(three)
    assert writers(three.worker(B, generation=1, stage="waits")) == []
    assert writers(three.worker(A, generation=1, stage="waits")) == [A]


def test_a_worker_that_leaves_for_another_reason_writes_nothing(three: Driver) -> None:
    three.want(B, C)
    assert writers(three.check_in(A, B, C)) == []


@pytest.mark.jobs
@pytest.mark.parametrize(
    "killed", [pytest.param(None, id="nobody"), pytest.param(EPOCHS * PER_EPOCH - 1, id="worker-0-in-the-last-step")]
)
def test_t9_each_file_of_a_real_job_is_written_and_all_can_read_it(tmp_path: Path, killed: int | None) -> None:
    script = Path(idioms.__file__).with_name("mortal_idiom.py")
    if killed is not None:
        (tmp_path / "doom").touch()
    moment = [str(killed or 0), "0", str(tmp_path), "0"]
    bed = JobBed(tmp_path, [sys.executable, str(script), "keeps_best", *moment], workers=3)
    try:
        for letter in "ABC":
            bed.add_node(letter, base=letter != "A")
        bed.want("ABC")
        bed.finish()
    finally:
        bed.close()
    assert not (tmp_path / "doom").exists()
    wrote = [path.read_text() for path in tmp_path.rglob("wrote-*")]
    after = [text for text in wrote if text.endswith(str(EPOCHS))]
    assert len(after) == 1, f"one writes after the loop: {wrote}"
    assert len(list(tmp_path.rglob("epoch-*.params"))) == EPOCHS
    assert len(list(tmp_path.glob("weights-*.npz"))) >= 2


def test_before_the_loop_nobody_can_know_but_one_that_is_alone() -> None:
    """Each of them would write, as each would be worker 0."""
    assert ElasticJob.join().writes
    with pytest.raises(RuntimeError, match="exist_ok"):
        CoordinatedMembership.writes.fget(SimpleNamespace(_generation=0, over=False))  # type: ignore[attr-defined]
