"""A worker from one loop over epochs to the next and to the end of its script: said too early the job ends while a
script still writes, said twice its next loop is taken for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from bytes_state import AT, Bytes
from coordinated_bed import Worker, form, go_on, worker_in
from dyntrain.training.protocol.messages import Go, Leave, LoopOver, Position
from dyntrain.training.worker.membership.client import CoordinatorLost

LATER = Position(epoch=2, offset=0, step=4)
GO = Go(generation=2)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    with worker_in(tmp_path, monkeypatch) as worker:
        yield worker


def leave(generation: int = 2, finished: bool = True, writes: bool = False) -> Leave:
    return Leave(generation=generation, reason="over", finished=finished, writes=writes)


def over(holds: bool = True, loop: int = 1, writes: bool = True) -> LoopOver:
    return LoopOver(generation=2, loop=loop, position=LATER, holds=holds, writes=writes)


def test_where_a_loop_is_over_the_worker_leaves_the_group_and_its_script_goes_on_at_the_coordinators_position(
    worker: Worker,
) -> None:
    worker.trains()
    assert worker.check_in(AT, over()) == LATER
    assert worker.log == ["check_in", "at exit", "dissolved"]
    assert (worker.membership.over, worker.membership.writes, worker.membership.starts) == (True, True, LATER)


@pytest.mark.parametrize("holds", [True, False])
def test_a_further_loop_is_entered_with_the_generation_whose_state_is_held_and_no_other(
    worker: Worker, holds: bool
) -> None:
    """With a number that it holds no state of, a worker that was skipped would be asked to hand over."""
    worker.trains()
    worker.check_in(AT, over(holds))
    more = {} if holds else {"commit": worker.membership._commits.store(None).write(4, 2, worker.state.pack(LATER))}
    position = worker.enter(form(3, LATER, **more), Go(generation=3), go_on(LATER, 3), epochs=11)
    assert position == LATER
    terms, generation = next(message for message in worker.line.sent if isinstance(message, tuple))
    assert (terms.loop, terms.epochs, generation) == (1, 11, 2 if holds else None)
    assert not worker.membership.over
    assert worker.line.of("formed")[-1].generation == 3
    worker.membership.stepped(LATER)
    assert (worker.line.of("first_step")[-1].pause is not None) == holds, "who held the state has waited"
    worker.check_in(AT, over(loop=2))
    assert worker.log.count("at exit") == 1, "else the script's end would be said twice"


@pytest.mark.parametrize("holds", [True, False])
def test_who_comes_to_a_further_loop_and_is_not_wanted_any_more_leaves(worker: Worker, holds: bool) -> None:
    worker.trains()
    worker.check_in(AT, over(holds))
    del worker.log[:]
    with pytest.raises(SystemExit) as ended:
        worker.enter(leave())
    assert ended.value.code == 0
    assert worker.log == ["entered", *(["dissolved", "left"] if holds else [])]


def test_a_loop_that_is_over_already_is_skipped(worker: Worker) -> None:
    worker.trains()
    worker.check_in(AT, over())
    assert worker.enter(over(loop=2)) == LATER
    assert worker.membership.over


@pytest.mark.parametrize("further", [False, True])
def test_before_a_loop_nothing_else_is_an_answer(worker: Worker, further: bool) -> None:
    if further:
        worker.trains()
        worker.check_in(AT, over())
    with pytest.raises(CoordinatorLost, match="expected the order to form a generation, got go"):
        worker.enter(GO)


def test_the_state_of_the_next_loop_is_what_is_handed_on_in_it(worker: Worker) -> None:
    worker.trains()
    worker.check_in(AT, over())
    worker.state = Bytes(9)
    worker.enter(form(3, LATER), Go(generation=3), go_on(LATER, 3, commit=True))
    thread = worker.membership._commits._thread
    assert thread is not None
    thread.join()
    [message] = worker.line.of("committed")
    assert worker.membership._commits.store(None).read(message.name)[-1] == 9


@pytest.mark.parametrize("holds", [True, False])
def test_the_end_of_the_script_is_said_once_and_waited_for(worker: Worker, holds: bool) -> None:
    worker.trains()
    worker.check_in(AT, over(holds))
    del worker.log[:]
    worker.line.answers.append([leave(writes=False)])
    worker.membership.script_ended()
    worker.membership.script_ended()
    assert worker.log[:3] == ["script_ended", "dissolved", "left"]
    [message] = worker.line.of("script_ended")
    assert message.generation == (2 if holds else None)
    assert message in worker.line.awaited
    assert worker.line.closed
    assert worker.membership.ended


@pytest.mark.parametrize("why", ["in a loop", "failed"])
def test_a_script_that_has_not_come_to_its_end_well_does_not_say_so(worker: Worker, why: str) -> None:
    """The job would end well, with a script's half in its output."""
    worker.trains()
    if why == "failed":
        worker.check_in(AT, over())
        worker.membership.failed(ValueError("no room for the export"))
    worker.membership.script_ended()
    assert worker.line.of("script_ended") == []
    assert worker.membership.ended


def test_a_coordinator_that_is_gone_when_the_script_ends_is_no_failure_of_the_script(worker: Worker) -> None:
    worker.trains()
    worker.check_in(AT, over())
    worker.membership.script_ended()
    assert worker.membership.ended
    assert worker.line.closed
