"""When a worker may say that its state is safe, and what of its state a process that comes after it goes on with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bytes_state import AT, HEAD, SIZE, Bytes, packed
from dyntrain.controller.local.pace import patient
from dyntrain.training.protocol.messages import Form, Position, Source
from dyntrain.training.worker.membership import handover as module
from dyntrain.training.worker.membership.handover import WrongState
from dyntrain.training.worker.state.block import checksum
from dyntrain.training.worker.state.safe_state import SafeStates
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import Superseded
from dyntrain.training.worker.transfer.server import StateServer
from handover_bed import HOST, TOKEN, Make, Worker, form, of_a_commit


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make_worker(fill: int) -> Worker:
            worker = Worker(tmp_path, fill, monkeypatch)
            stack.callback(worker.close)
            return worker

        yield make_worker


@pytest.fixture
def source() -> Iterator[Callable[..., Source]]:
    """Another member that has the state, and hands out the name that it is told."""
    with contextlib.ExitStack() as stack:

        def offers(block: memoryview, name: str | None = None, generation: int = 3) -> Source:
            server = StateServer(HOST)
            stack.callback(server.close)
            server.expect(generation, TOKEN)
            feed = Feed.whole(block, "i-source")
            feed.finish(name or checksum(block).hex())
            server.offer(generation, feed)
            return Source(instance_id="i-source", host=HOST, port=server.port)

        yield offers


def of_this_memory(worker: Worker) -> Form:
    worker.handover.note_position(AT)
    return form()


def of_the_process_before(worker: Worker) -> Form:
    block = worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    left = worker.handover.newest()
    assert left is not None
    del block
    return form(safe=left.name)


@pytest.mark.parametrize(
    ("comes", "loads"),
    [(of_this_memory, []), (of_a_commit, [("installed", False)]), (of_the_process_before, [("installed", False)])],
)
def test_t9_whoever_has_the_state_is_prepared_once_it_is_sealed_and_at_no_step_before(
    make: Make, monkeypatch: pytest.MonkeyPatch, comes: Callable[[Worker], Form], loads: list[Any]
) -> None:
    """The word to go follows, and with it ps-lite, where it is killed when another dies: a state without a seal is
    nobody's then.
    """
    worker = make(7)
    order = comes(worker)
    worker.watch(monkeypatch)
    preparation = worker.prepare(order)
    assert preparation.safe_within(patient(30))
    assert worker.left == (3, AT, 7), "whoever comes after it is killed now goes on there"
    preparation.state.result(patient(30))
    assert worker.observations == [*loads, ("copied", False), ("sealed", False), ("compared", True)]


def test_t9_a_large_state_that_is_fetched_is_safe_once_it_is_here_and_sealed(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source]
) -> None:
    monkeypatch.setattr(module, "BESIDE_FORMATION", SIZE - 1)
    worker = make(1)
    worker.watch(monkeypatch)
    preparation = worker.prepare(form(sources=(source(packed(7)),)))
    assert worker.progress[0] == (0, SIZE), "the coordinator waits for it accordingly"
    assert preparation.safe_within(patient(30))
    assert worker.left == (3, AT, 7)
    preparation.state.result(patient(30))
    assert worker.observations == [("installed", False), ("sealed", False), ("compared", True)]
    assert worker.progress[-1] == (HEAD + SIZE, HEAD + SIZE)


def test_t9_who_fetches_a_small_state_is_prepared_before_it_is_here_and_whoever_has_one_is_not(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source]
) -> None:
    """Its transfer is taken out of the pause: nothing is lost with a joiner that has none. But for whoever holds it
    the size makes no difference.
    """
    monkeypatch.setattr(module, "BESIDE_FORMATION", SIZE)
    may = threading.Event()
    joiner, holder = make(1), make(7)
    holder.handover.note_position(AT)
    for worker in (joiner, holder):
        monkeypatch.setattr(worker.state, "seen", lambda what: may.wait(patient(30)) or None)
    answers = [
        joiner.prepare(form(sources=(source(packed(7)),))).safe_within(0),
        holder.prepare(form()).safe_within(0),
    ]
    may.set()
    assert answers == [True, False]
    assert (0, SIZE) not in joiner.progress, "what is small needs no bound of its own"
    for worker in (joiner, holder):
        assert worker.preparation.result().state.result(patient(30)).block[-1] == 7


def test_a_boundarys_state_is_told_of_once_it_is_sealed_and_the_one_before_until_then(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal is set beside the next step, under which the worker may be killed."""
    worker = make(7)
    worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    safe_states, seal = [], SafeStates.seal

    def watched(states: SafeStates, *given: Any) -> None:
        safe_states.append(worker.left)
        seal(states, *given)

    monkeypatch.setattr(SafeStates, "seal", watched)
    worker.state.fill = 8
    later = Position(epoch=1, offset=4, step=4)
    worker.handover.keep(2, later)
    worker.state.fill = 9
    worker.handover.sealing.result(patient(30))
    assert safe_states == [(2, AT, 7)]
    assert worker.left == (2, later, 8)
    newest = worker.handover.newest()
    assert newest is not None
    assert (newest.generation, newest.position) == (2, later)


def test_the_state_of_an_order_that_was_taken_back_is_not_sealed_under_its_number(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the newest, and a process that comes after would go on from a generation that there never was."""
    worker = make(7)
    worker.handover.note_position(AT)
    with worker.handover._installing:  # as while the one before is still copied
        taken_back = worker.handover.prepare(form(3), worker.commits)
        following = worker.handover.prepare(form(4), worker.commits)
    assert following.state.result(patient(30)).block[-1] == 7
    with pytest.raises(Superseded):
        taken_back.state.result(patient(30))
    assert worker.left == (4, AT, 7)
    with pytest.raises(Superseded):
        taken_back.safe_within(patient(30))


@pytest.mark.parametrize("step", [1, 3])
def test_a_state_of_another_step_is_neither_passed_off_nor_sealed(make: Make, step: int) -> None:
    """Behind the position that the job goes on from samples would be missing, ahead of it some would count twice."""
    worker = make(7)
    worker.handover.note_position(Position(epoch=1, offset=0, step=step))
    with pytest.raises(WrongState, match=f"of step {step}, not 2"):
        worker.prepare(form(receivers=1)).state.result(patient(30))
    assert worker.left is None


def test_in_the_scripts_next_loop_what_was_kept_of_the_last_one_stays_while_it_is_committed(make: Make) -> None:
    worker = make(7)
    committing = worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    worker.handover.begin_next_loop(Bytes(8))
    assert worker.left == (2, AT, 7), "until the next loop's first generation has one"
    for generation in (3, 4, 5):
        worker.handover.keep(generation, AT)
        worker.handover.sealing.result(patient(30))
        assert worker.left == (generation, AT, 8)
    assert committing[-1] == 7


def test_who_comes_to_its_coordinator_while_a_state_is_loaded_tells_of_none_and_of_the_newest_after_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage may be slow, and the coordinator waits for the greeting."""
    worker = make(7)
    worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    monkeypatch.setattr(module, "NEWEST_SECONDS", 0.01)
    with worker.handover._installing:
        assert worker.handover.newest() is None
    for _ in range(2):
        newest = worker.handover.newest()
        assert newest is not None
        assert (newest.generation, newest.position) == (2, AT)
