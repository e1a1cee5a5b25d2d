"""When a worker may say that its state is safe, and what of a state that was damaged on its way reaches it: nothing.

Workers as their handovers alone: the state is so many bytes, and no network is trained.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from bytes_state import AT, HEAD, SIZE, Bytes, packed
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import Form, Position, Source
from dyntrain.training.worker.membership import handover as module
from dyntrain.training.worker.membership.handover import Handover, Preparation, WrongState
from dyntrain.training.worker.state.block import checksum
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitDamaged, CommitStore
from dyntrain.training.worker.state.safe_state import SafeStates
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import Superseded, TransferError
from dyntrain.training.worker.transfer.server import StateServer

HERE, HOST, TOKEN = "i-0000000a", "127.0.0.1", "the token"


class Worker:
    def __init__(self, folder: Path, fill: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory, self.state = SafeMemory(), Bytes(fill)
        control = ControlFile(
            cluster="c",
            job="j",
            instance_id=HERE,
            private_ip=HOST,
            url="wss://x",
            certificate="",
            token="t",
            mount=str(folder),
            progress_seconds=patient(30),
        )
        for name, value in self.memory.environment.items():
            monkeypatch.setenv(name, value)
        self.handover = Handover(control)
        self.handover.open("j", self.state)
        self.commits = CommitStore(folder)
        self.preparation: Future[Preparation] = Future()
        self.said: list[tuple[str, bool]] = []
        self.told: list[tuple[int, int]] = []

    def close(self) -> None:
        self.handover.close()
        self.memory.close()

    @property
    def left(self) -> Any:
        """What a process that comes after this one would go on with: generation, position, and what is in it."""
        states = SafeStates(self.memory.descriptors, "j")
        newest = states.newest()
        try:
            return (newest.generation, newest.position, states.read(newest.name)[-1]) if newest else None
        except CommitDamaged as error:
            return str(error)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From here on `said` has, for each thing that is done to the state, whether the worker would have said just
        before it that it is prepared.
        """
        seal = SafeStates.seal

        def ask(what: str) -> None:
            self.said.append((what, self.preparation.result(patient(30)).safe_within(0)))

        def watched(states: SafeStates, *given: Any) -> None:
            ask("sealed")
            seal(states, *given)

        monkeypatch.setattr(SafeStates, "seal", watched)
        self.state.seen = ask

    def prepare(self, order: Form) -> Preparation:
        preparation = self.handover.prepare(order, self.commits, lambda got, size: self.told.append((got, size)))
        self.preparation.set_result(preparation)
        return preparation


Make = Callable[[int], Worker]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def made(fill: int) -> Worker:
            worker = Worker(tmp_path, fill, monkeypatch)
            stack.callback(worker.close)
            return worker

        yield made


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


def form(generation: int = 3, position: Position = AT, **more: Any) -> Form:
    told = {"number": 0, "workers": 2, "environment": {}, "source": HERE, "transfer_token": TOKEN, **more}
    return Form(generation=generation, position=position, **told)


# ---- safe


def of_this_memory(worker: Worker) -> Form:
    worker.handover.reached(AT)
    return form()


def of_a_commit(worker: Worker) -> Form:
    return form(commit=worker.commits.write(AT.step, 2, packed(7)))


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
    assert worker.said == [*loads, ("copied", False), ("sealed", False), ("compared", True)]


def test_t9_a_large_state_that_is_fetched_is_safe_once_it_is_here_and_sealed(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source]
) -> None:
    monkeypatch.setattr(module, "BESIDE_FORMATION", SIZE - 1)
    worker = make(1)
    worker.watch(monkeypatch)
    preparation = worker.prepare(form(sources=(source(packed(7)),)))
    assert worker.told[0] == (0, SIZE), "the coordinator waits for it accordingly"
    assert preparation.safe_within(patient(30))
    assert worker.left == (3, AT, 7)
    preparation.state.result(patient(30))
    assert worker.said == [("installed", False), ("sealed", False), ("compared", True)]
    assert worker.told[-1] == (HEAD + SIZE, HEAD + SIZE)


def test_t9_who_fetches_a_small_state_is_prepared_before_it_is_here_and_whoever_has_one_is_not(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source]
) -> None:
    """Its transfer is taken out of the pause: nothing is lost with a joiner that has none. But for whoever holds it
    the size makes no difference.
    """
    monkeypatch.setattr(module, "BESIDE_FORMATION", SIZE)
    may = threading.Event()
    joiner, holder = make(1), make(7)
    holder.handover.reached(AT)
    for worker in (joiner, holder):
        monkeypatch.setattr(worker.state, "seen", lambda what: may.wait(patient(30)) or None)
    answers = [
        joiner.prepare(form(sources=(source(packed(7)),))).safe_within(0),
        holder.prepare(form()).safe_within(0),
    ]
    may.set()
    assert answers == [True, False]
    assert (0, SIZE) not in joiner.told, "what is small needs no bound of its own"
    for worker in (joiner, holder):
        assert worker.preparation.result().state.result(patient(30)).block[-1] == 7


def test_a_boundarys_state_is_told_of_once_it_is_sealed_and_the_one_before_until_then(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal is set beside the next step, under which the worker may be killed."""
    worker = make(7)
    worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    found, seal = [], SafeStates.seal

    def watched(states: SafeStates, *given: Any) -> None:
        found.append(worker.left)
        seal(states, *given)

    monkeypatch.setattr(SafeStates, "seal", watched)
    worker.state.fill = 8
    later = Position(epoch=1, offset=4, step=4)
    worker.handover.keep(2, later)
    worker.state.fill = 9
    worker.handover.sealing.result(patient(30))
    assert found == [(2, AT, 7)]
    assert worker.left == (2, later, 8)
    newest = worker.handover.newest()
    assert newest is not None
    assert (newest.generation, newest.position) == (2, later)


def test_the_state_of_an_order_that_was_taken_back_is_not_sealed_under_its_number(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the newest, and a process that comes after would go on from a generation that there never was."""
    worker = make(7)
    worker.handover.reached(AT)
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
    worker.handover.reached(Position(epoch=1, offset=0, step=step))
    with pytest.raises(WrongState, match=f"of step {step}, not 2"):
        worker.prepare(form(receivers=1)).state.result(patient(30))
    assert worker.left is None


# ---- damaged


def one_bit(block: memoryview) -> memoryview:
    damaged = bytearray(block)
    damaged[HEAD + SIZE // 2] ^= 1
    return memoryview(damaged)


def of_a_source(worker: Worker, source: Callable[..., Source]) -> Form:
    """In its memory, after it was named: no frame of the connection is wrong."""
    return form(sources=(source(one_bit(packed(7)), checksum(packed(7)).hex()),))


def of_a_damaged_commit(worker: Worker, source: Callable[..., Source]) -> Form:
    order = of_a_commit(worker)
    path = worker.commits._directory / str(order.commit)
    path.write_bytes(bytes(one_bit(memoryview(path.read_bytes()))))
    return order


def of_damaged_memory(worker: Worker, source: Callable[..., Source]) -> Form:
    fill, worker.state.fill = worker.state.fill, 7
    block = worker.handover.keep(2, AT)
    worker.handover.sealing.result(patient(30))
    left = worker.handover.newest()
    block[HEAD + SIZE // 2] ^= 1
    worker.state.fill = fill
    assert left is not None
    return form(safe=left.name)


@pytest.mark.parametrize(
    ("comes", "error"),
    [(of_a_source, TransferError), (of_a_damaged_commit, CommitDamaged), (of_damaged_memory, CommitDamaged)],
)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_joiner_takes_nothing_of_a_state_with_one_wrong_bit_and_hands_none_on(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[..., Source],
    comes: Callable[[Worker, Callable[..., Source]], Form],
    error: type[Exception],
    large: bool,
) -> None:
    """A wrong bit in a weight is an error that nobody would see: all workers would train on with it."""
    if large:
        monkeypatch.setattr(module, "BESIDE_FORMATION", SIZE - 1)
    worker = make(1)
    order = comes(worker, source)
    before = worker.left
    shared: list[Feed] = []
    offer = worker.handover._server.offer
    monkeypatch.setattr(
        worker.handover._server, "offer", lambda generation, feed: (shared.append(feed), offer(generation, feed))
    )
    preparation = worker.prepare(order)
    with pytest.raises(error):
        preparation.state.result(patient(30))
    with pytest.raises(error):
        preparation.safe_within(patient(30))
    assert (worker.state.installed, worker.state.fill) == (0, 1)
    assert worker.left == before, "and none of it is safe"
    assert [feed.void for feed in shared] == ([True] if comes is of_a_source else []), "who is behind asks elsewhere"


@pytest.mark.parametrize(
    "found", [AT.model_copy(update={"offset": 4}), AT.model_copy(update={"step": 1}), AT.model_copy(update={"step": 3})]
)
def test_a_commit_that_is_of_another_position_than_its_name_says_is_not_gone_on_from(
    make: Make, found: Position
) -> None:
    worker = make(1)
    name = worker.commits.write(AT.step, 2, packed(7, found))
    with pytest.raises(CheckpointError, match="as the coordinator says"):
        worker.prepare(form(commit=name)).state.result(patient(30))
    assert worker.left is None


def test_what_a_joiner_has_fetched_it_has_as_its_own_and_hands_on_under_the_same_name(
    make: Make, source: Callable[..., Source]
) -> None:
    worker, behind = make(1), make(2)
    order = form(sources=(source(packed(7)),), receivers=2)
    port = worker.handover.port
    chained = form(sources=(Source(instance_id=HERE, host=HOST, port=port),), receivers=2)
    both = [worker.prepare(order), behind.prepare(chained)]
    kept = [preparation.state.result(patient(30)) for preparation in both]
    assert len({one.digest for one in kept}) == 1
    assert [worker.state.fill, behind.state.fill] == [7, 7]
    assert worker.left == (3, AT, 7)
    again = worker.handover.prepare(form(4), worker.commits)
    assert again.state.result(patient(30)).block[-1] == 7, "its memory is at the position that it was given"


def test_a_member_hands_out_its_state_to_those_who_lack_it_until_all_have_formed(make: Make) -> None:
    holder, joiner, late = make(7), make(1), make(2)
    holder.handover.reached(AT)
    order = form(receivers=2)
    holder.prepare(order)
    behind = form(sources=(Source(instance_id=HERE, host=HOST, port=holder.handover.port),))
    assert joiner.prepare(behind).state.result(patient(30)).block[-1] == 7
    holder.handover.release(order)
    holder.preparation.result().state.result(patient(30))
    late.handover._control = late.handover._control.model_copy(update={"progress_seconds": 0.2})
    with pytest.raises(TransferError):
        late.prepare(behind).state.result(patient(30))
    assert late.state.installed == 0
