"""What a worker says to its coordinator, and what it has done by then: the coordinator believes it. A word too early is
a state that is lost with the next kill, a group that nobody can be called back from, or weights of another generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from coordinated_bed import HOST, Worker, form, go_on, worker_in
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import START, Abort, Go, Leave, LoopOver, Position, Source, StepVerdict
from dyntrain.training.worker.membership import handover
from dyntrain.training.worker.membership.client import CoordinatorLost
from dyntrain.training.worker.state.safe_state import SafeStates

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


def test_a_worker_is_out_of_its_old_group_before_it_is_prepared_and_in_the_new_one_after_the_word_to_go(
    worker: Worker,
) -> None:
    expected: list[Any] = []
    worker.membership.expects = lambda *arguments: (worker.log.append("expected"), expected.append(arguments))  # type: ignore[func-returns-value]
    assert worker.enter(form(2, START), GO, go_on(START)) == START
    assert worker.log == ["dissolved", "prepared", "expected", "in the group", "formed"]
    assert expected == [(START, 1, 3)], "a loop that must not begin there is told before anybody is inside the group"
    assert (worker.membership.kvstore.rank, worker.membership.kvstore.num_workers) == (1, 3)
    assert (worker.membership.generation, worker.membership.first_step) == (2, 0)
    assert [message.type for message in worker.line.awaited] == ["worker_hello", "prepared", "formed"], (
        "said again after a broken connection"
    )


def test_a_worker_says_how_many_bytes_it_sends_in_a_step(worker: Worker) -> None:
    keys = [("votes", (3,), "float64"), ("weights", (2, 5), "float16")]
    worker.enter(form(2, START), GO, go_on(START), keys=keys)
    assert worker.line.hello is not None
    assert worker.line.hello.summed_bytes == 44


def test_t9_prepared_is_said_after_the_seal(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[tuple[str, bool]] = []
    worker.state.seen = lambda what: moments.append((what, "prepared" in worker.log))
    seal = SafeStates.seal

    def sealed(*given: Any) -> None:
        moments.append(("sealed", "prepared" in worker.log))
        seal(*given)

    monkeypatch.setattr(SafeStates, "seal", sealed)
    worker.enter(form(2, START), GO, go_on(START))
    assert moments[:2] == [("copied", False), ("sealed", False)]
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
        assert worker.line.sent[-1].generation == 3
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
        with pytest.raises(CoordinatorLost, match="while generation 2 was formed: "):
            worker.enter(*answers)
    if kind != "form":
        assert ("in the group" in worker.log, "formed" in worker.log) == (after == "formed",) * 2


@pytest.mark.parametrize("which", ["commit", "safe"])
def test_a_state_that_cannot_be_read_is_told_by_its_name_in_place_of_prepared(worker: Worker, which: str) -> None:
    """While everybody can still be told to form from another one."""
    worker.enter(form(2, START, **{which: "gone"}), form(3, START), Go(generation=3), go_on(START, 3))
    [unreadable] = worker.line.of("commit_unreadable")
    assert (unreadable.generation, unreadable.name) == (2, "gone")
    assert unreadable in worker.line.awaited
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


def test_a_loss_is_answered_for_the_generation_at_hand_and_forgotten_in_the_next(worker: Worker) -> None:
    for generation in (2, 3):
        order, go = form(generation, START, receivers=1), Go(generation=generation)
        if generation == 2:
            worker.enter(order, go, go_on(START, generation))
        else:
            worker.line.answers += [[order], [go], [go_on(START, generation)]]
            worker.line.orders.put(worker.line.answers.pop(0)[0])
            assert worker.membership.rejoin(START) == START
        assert not worker.membership.broken
        assert worker.membership._handover._server._offer.over, "all have formed: its memory is let go of"
        for number in (2, 3):
            worker.urgent(Abort(generation=number))
        assert worker.membership.broken
        assert [status.generation for status in worker.line.of("step_status")] == [2, 3][: generation - 1]
        worker.urgent(StepVerdict(generation=generation, position=START))
