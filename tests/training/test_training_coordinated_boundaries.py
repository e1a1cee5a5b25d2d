"""What a worker says at a boundary, how it goes on from there, and which states it keeps and commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from bytes_state import AT, Bytes
from coordinated_bed import HERE, HOST, Worker, form, go_on, worker_in
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import START, Go, Leave, LoopOver, Position, Source
from dyntrain.training.worker.membership.client import CoordinatorLost
from waiting import wait_for

LATER = Position(epoch=2, offset=0, step=4)
GO = Go(generation=2)
NOWHERE = (Source(instance_id="i-0000000b", host=HOST, port=1),)


@pytest.fixture
def memory() -> Iterator[SafeMemory]:
    memory = SafeMemory()
    yield memory
    memory.close()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: SafeMemory) -> Iterator[Worker]:
    with worker_in(tmp_path, monkeypatch, memory) as worker:
        yield worker


def leave(generation: int = 2, finished: bool = False, writes: bool = False) -> Leave:
    return Leave(generation=generation, reason="removed", finished=finished, writes=writes)


def over(holds: bool = True, loop: int = 1) -> LoopOver:
    return LoopOver(generation=2, loop=loop, position=LATER, holds=holds, writes=True)


def test_a_check_in_has_what_was_done_since_the_word_before_and_nothing_twice(worker: Worker) -> None:
    worker.trains()
    membership = worker.membership
    membership.intend(AT, np.arange(5))
    membership.count(3)
    membership.take_back(2)
    membership.record("loss", 4.0, 2.0)
    membership.record("loss", 1.0, 1.0)
    assert worker.check_in(LATER, go_on(LATER)) == LATER
    membership.stopping = True
    assert worker.check_in(LATER, go_on(LATER)) == LATER
    first, second = worker.line.of("check_in")
    assert (first.generation, first.position, first.samples, first.metrics) == (2, LATER, 6, {"loss": (5.0, 3.0)})
    assert (second.samples, second.metrics) == (0, {})
    assert [first.stop, second.stop] == [False, True]
    assert worker.line.awaited == [first, second]


def test_a_survivor_of_a_boundary_hands_on_the_state_of_where_it_stands(worker: Worker) -> None:
    worker.trains()
    worker.state.fill = 8
    go, on = Go(generation=3), go_on(LATER, 3)
    assert worker.check_in(LATER, form(3, LATER, segment_steps=4, number=0, workers=1), go, on) == LATER
    newest = worker.membership._handover.newest()
    assert newest is not None
    assert (newest.generation, newest.position) == (3, LATER)
    assert (worker.membership.segment_steps, worker.membership.first_step) == (4, 4)


@pytest.mark.parametrize(
    ("order", "stays"),
    [
        (leave(finished=True), True),
        (leave(finished=False), False),
        (leave(generation=3, finished=True), False),
        (leave(generation=1, finished=True), False),
    ],
)
def test_who_has_come_to_the_jobs_end_goes_on_with_its_script_and_nobody_else_does(
    worker: Worker, order: Leave, stays: bool
) -> None:
    """The script then keeps its result: one of another generation's is not the job's."""
    worker.trains()
    if stays:
        assert worker.check_in(LATER, order) == LATER
    else:
        with pytest.raises(SystemExit) as ended:
            worker.check_in(LATER, order)
        assert ended.value.code == 0
    assert worker.log == ["check_in", "dissolved", "left"]
    assert worker.membership.over
    assert worker.check_in(LATER) == LATER, "nothing is said any more"
    assert worker.log == ["check_in", "dissolved", "left"]


def test_what_is_no_word_to_go_on_from_a_boundary_ends_the_worker(worker: Worker) -> None:
    worker.trains()
    with pytest.raises(CoordinatorLost, match="order at the boundary, got go"):
        worker.check_in(LATER, Go(generation=3))


@pytest.mark.parametrize("writes", [False, True])
def test_the_script_writes_on_the_first_worker_and_at_the_end_where_the_coordinator_says(
    worker: Worker, writes: bool
) -> None:
    with pytest.raises(RuntimeError, match="no worker has its number yet"):
        _ = worker.membership.writes
    worker.trains()
    assert not worker.membership.writes
    worker.check_in(LATER, form(3, LATER, number=0), Go(generation=3), go_on(LATER, 3))
    assert worker.membership.writes
    worker.check_in(LATER, leave(3, finished=True, writes=writes))
    worker.membership.kvstore.rank = int(writes)
    assert worker.membership.writes == writes, "the first may have been lost in the last step"


# ---- commits


def committed(worker: Worker) -> list[tuple[int, Position, int]]:
    commits = worker.membership._commits
    wait_for(lambda: not commits.is_writing, 30)
    return [
        (message.generation, message.position, commits.store(None).read(message.name)[-1])
        for message in worker.line.of("committed")
    ]


@pytest.mark.parametrize("commit", [False, True])
def test_what_is_committed_is_the_state_of_the_boundary_and_only_where_it_is_ordered(
    worker: Worker, commit: bool
) -> None:
    worker.trains()
    worker.state.fill = 8
    worker.check_in(LATER, go_on(LATER, commit=commit))
    worker.state.fill = 9
    assert committed(worker) == ([(2, LATER, 8)] if commit else [])
    if commit:
        worker.membership._handover.sealing.result(patient(30))
    newest = worker.membership._handover.newest()
    assert newest is not None
    assert (newest.generation, newest.position) == (2, LATER if commit else AT)


def test_a_generation_that_is_to_commit_where_it_begins_commits_what_it_formed_with(worker: Worker) -> None:
    copied: list[str] = []
    worker.state.seen = copied.append
    worker.enter(form(2, START), GO, go_on(START, commit=True))
    assert copied.count("copied") == 1, "a second copy would be made while nobody steps"
    worker.state.fill = 9
    assert committed(worker) == [(2, START, 7)]


def test_while_a_slow_commit_is_written_the_next_is_kept_and_not_written(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow storage gets fewer commits, not a queue of states; the node's memory has each all the same."""
    worker.trains()
    kind = type(worker.membership._commits)
    with monkeypatch.context() as slow:
        slow.setattr(kind, "is_writing", property(lambda self: True))
        worker.check_in(LATER, go_on(LATER, commit=True))
    assert committed(worker) == []
    worker.membership._handover.sealing.result(patient(30))
    newest = worker.membership._handover.newest()
    assert newest is not None
    assert newest.position == LATER


def test_without_memory_of_its_node_a_worker_copies_no_state_that_it_does_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker_in(tmp_path, monkeypatch) as worker:
        worker.trains()
        copied: list[str] = []
        worker.state.seen = copied.append
        with monkeypatch.context() as slow:
            slow.setattr(type(worker.membership._commits), "is_writing", property(lambda self: True))
            worker.check_in(LATER, go_on(LATER, commit=True))
        assert copied == []
        worker.check_in(LATER, go_on(LATER, commit=True))
        assert committed(worker) == [(2, LATER, 7)]


def test_where_the_state_is_said_to_be_is_where_the_worker_listens(worker: Worker) -> None:
    worker.enter(form(2, START), GO, go_on(START))
    hello = worker.line.hello
    assert hello is not None
    assert (hello.instance_id, hello.private_ip) == (HERE, HOST)
    assert hello.state_port == worker.membership._handover.port
    assert isinstance(worker.membership._handover._state, Bytes)
