"""What a worker says to its coordinator, and what it has done by then: the coordinator believes it. A word too early is
a state that is lost with the next kill, a group that nobody can be called back from, or weights of another generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from bytes_state import AT, Bytes
from coordinated_bed import HERE, HOST, Worker, form, go_on, worker_in
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import START, Go, Leave, LoopOver, Position, Source
from dyntrain.training.worker.membership import handover
from dyntrain.training.worker.membership.client import CoordinatorLost
from dyntrain.training.worker.state.safe_state import SafeStates
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


# ---- a formation


def test_a_worker_is_out_of_its_old_group_before_it_is_prepared_and_in_the_new_one_after_the_word_to_go(
    worker: Worker,
) -> None:
    expected: list[Any] = []
    worker.membership.expects = lambda *told: (worker.log.append("expected"), expected.append(told))  # type: ignore[func-returns-value]
    assert worker.enter(form(2, START), GO, go_on(START)) == START
    assert worker.log == ["dissolved", "prepared", "expected", "in the group", "formed"]
    assert expected == [(START, 1, 3)], "a loop that must not begin there is told before anybody is inside the group"
    assert (worker.membership.kvstore.rank, worker.membership.kvstore.num_workers) == (1, 3)
    assert (worker.membership.generation, worker.membership.first_step) == (2, 0)
    assert [message.type for message in worker.line.awaited] == ["worker_hello", "prepared", "formed"], (
        "said again after a broken connection"
    )


def test_t9_prepared_is_said_after_the_seal(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, bool]] = []
    worker.state.seen = lambda what: said.append((what, "prepared" in worker.log))
    seal = SafeStates.seal

    def sealed(*given: Any) -> None:
        said.append(("sealed", "prepared" in worker.log))
        seal(*given)

    monkeypatch.setattr(SafeStates, "seal", sealed)
    worker.enter(form(2, START), GO, go_on(START))
    assert said[:2] == [("copied", False), ("sealed", False)]
    newest = worker.safe()
    assert newest is not None
    assert (newest.generation, newest.position) == (2, START)


def test_while_the_state_is_copied_a_newer_order_counts_and_the_earlier_is_never_answered(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "BESIDE_FORMATION", 0)
    lacking = form(2, START, sources=NOWHERE)
    assert worker.enter([lacking, form(3, START)], Go(generation=3), go_on(START, 3)) == START
    assert [message.generation for message in worker.line.of("prepared")] == [3]
    assert [message.generation for message in worker.line.of("formed")] == [3]
    assert worker.membership.generation == 3


@pytest.mark.parametrize("after", ["prepare", "prepared", "formed"])
@pytest.mark.parametrize("kind", ["form", "leave", "loop over", "other"])
def test_at_each_step_of_a_formation_another_word_may_come_in_its_place(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, after: str, kind: str
) -> None:
    """A member was lost, or this one is not wanted any more. What is none of these is no word to go on from."""
    instead = {"form": form(3, START, number=0), "leave": leave(), "loop over": over(holds=False), "other": None}[kind]
    if after == "prepare":
        monkeypatch.setattr(handover, "BESIDE_FORMATION", 0)
        first = form(2, START, sources=NOWHERE)
        answers: list[Any] = [[first, instead or go_on(LATER)]]
    elif after == "prepared":
        answers = [form(2, START), instead or go_on(LATER)]
    else:
        answers = [form(2, START), GO, instead or Go(generation=3)]
    if kind == "form":
        assert worker.enter(*answers, Go(generation=3), go_on(START, 3)) == START
        assert (worker.membership.generation, worker.membership.kvstore.rank) == (3, 0)
        assert worker.line.said[-1].generation == 3
    elif kind == "leave":
        with pytest.raises(SystemExit) as ended:
            worker.enter(*answers)
        assert ended.value.code == 0
        assert worker.log[-2:] == ["dissolved", "left"], "who is told to leave is out of the group before it says so"
    elif kind == "loop over":
        assert worker.enter(*answers) == LATER
        assert worker.membership.over
        assert worker.membership.starts == LATER
    else:
        with pytest.raises(CoordinatorLost, match="while generation 2 was formed: got"):
            worker.enter(*answers)
    if kind != "form":
        assert ("in the group" in worker.log, "formed" in worker.log) == (after == "formed",) * 2


@pytest.mark.parametrize("which", ["commit", "safe"])
def test_a_state_that_cannot_be_read_is_told_by_its_name_in_place_of_prepared(worker: Worker, which: str) -> None:
    """While everybody can still be told to form from another one."""
    worker.enter(form(2, START, **{which: "gone"}), form(3, START), Go(generation=3), go_on(START, 3))
    [told] = worker.line.of("commit_unreadable")
    assert (told.generation, told.name) == (2, "gone")
    assert told in worker.line.awaited
    assert [message.generation for message in worker.line.of("prepared")] == [3]
    assert worker.log.count("in the group") == 1


def test_a_state_that_does_not_come_waits_for_the_coordinators_word(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "BESIDE_FORMATION", 0)
    monkeypatch.setattr(handover, "LEAST_SPEED", 1e9)
    worker.membership._handover._control = worker.membership._control.model_copy(update={"progress_seconds": 0.01})
    worker.line.answers.append([form(2, START, sources=NOWHERE)])
    with pytest.raises(CoordinatorLost, match="the test says no more"):
        worker.enter()
    assert worker.line.of("prepared") == []
    assert worker.line.of("fetching")[0].received == 0


def test_the_word_formed_has_the_digest_of_the_state_that_is_trained_on(worker: Worker) -> None:
    """Compared before anybody steps."""
    digests = []
    for generation, fill in ((2, 7), (3, 7), (4, 8)):
        worker.state.fill = fill
        go, on = Go(generation=generation), go_on(START, generation)
        if generation == 2:
            worker.enter(form(generation, START), go, on)
        else:
            worker.check_in(START, form(generation, START), go, on)
        digests.append(worker.line.of("formed")[-1].digest)
    assert digests[0] == digests[1] != digests[2]
    assert dict(worker.line.of("formed")[0].checks).keys() == {"all"}


# ---- at boundaries


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
    with pytest.raises(CoordinatorLost, match="how to go on from the boundary, got go"):
        worker.check_in(LATER, Go(generation=3))


def test_the_script_writes_on_the_first_worker_and_at_the_end_where_the_coordinator_says(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="no worker has its number yet"):
        _ = worker.membership.writes
    worker.trains()
    assert not worker.membership.writes
    worker.check_in(LATER, form(3, LATER, number=0), Go(generation=3), go_on(LATER, 3))
    assert worker.membership.writes
    worker.check_in(LATER, leave(3, finished=True, writes=False))
    assert not worker.membership.writes, "the coordinator names another: the first may have been lost"


# ---- commits


def committed(worker: Worker) -> list[tuple[int, Position, int]]:
    commits = worker.membership._commits
    wait_for(lambda: not commits.is_writing, 30)
    return [
        (said.generation, said.position, commits.store(None).read(said.name)[-1])
        for said in worker.line.of("committed")
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
    worker.enter(form(2, START), GO, go_on(START, commit=True))
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
