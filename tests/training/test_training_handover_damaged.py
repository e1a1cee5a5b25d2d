"""What of a state that was damaged on its way, or is of another step, reaches a worker that joins: nothing."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bytes_state import AT, HEAD, SIZE, packed
from dyntrain.controller.local.pace import patient
from dyntrain.training.protocol.messages import Form, Position, Source
from dyntrain.training.worker.membership import handover as module
from dyntrain.training.worker.membership.background import in_background
from dyntrain.training.worker.state.block import allocate, checksum
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitDamaged
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import FetchRequest, TransferError, fetch
from dyntrain.training.worker.transfer.server import StateServer
from handover_bed import HERE, HOST, TOKEN, Make, Worker, form, of_a_commit


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
    assert [feed.is_void for feed in shared] == ([True] if comes is of_a_source else []), "who is behind asks elsewhere"


@pytest.mark.parametrize(
    "position",
    [AT.model_copy(update={"offset": 4}), AT.model_copy(update={"step": 1}), AT.model_copy(update={"step": 3})],
)
def test_a_commit_that_is_of_another_position_than_its_name_says_is_not_gone_on_from(
    make: Make, position: Position
) -> None:
    worker = make(1)
    name = worker.commits.write(AT.step, 2, packed(7, position))
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
    holder.handover.note_position(AT)
    order = form(receivers=2)
    holder.prepare(order)
    behind = form(sources=(Source(instance_id=HERE, host=HOST, port=holder.handover.port),))
    assert joiner.prepare(behind).state.result(patient(30)).block[-1] == 7
    holder.handover.stop_offering(order)
    holder.preparation.result().state.result(patient(30))
    late.handover._control = late.handover._control.model_copy(update={"progress_seconds": 0.2})
    with pytest.raises(TransferError):
        late.prepare(behind).state.result(patient(30))
    assert late.state.installed == 0


@pytest.mark.parametrize("clear", [False, True], ids=["sealed", "clear"])
def test_a_state_goes_from_node_to_node_as_the_order_says_on_both_sides(make: Make, clear: bool) -> None:
    """In the clear on one side only, nobody who joins would ever get it; never in the clear unless that is said."""
    holder = make(7)
    holder.handover.note_position(AT)
    holder.prepare(form(receivers=1, clear=clear)).state.result(patient(30))
    address = (HOST, holder.handover.port)
    for requested in (clear, not clear):
        request = FetchRequest(3, TOKEN, [address], allocate, clear=requested)
        if requested == clear:
            assert fetch(request, patient(30)).block[-1] == 7
        else:
            with pytest.raises(TransferError):
                fetch(request, 0.1)
    joiner = make(1)
    sources = (Source(instance_id=HERE, host=HOST, port=address[1]),)
    assert joiner.prepare(form(sources=sources, clear=clear)).state.result(patient(30)).block[-1] == 7


def test_how_long_a_state_may_take_grows_with_it_and_its_bytes_are_added_up_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source]
) -> None:
    """A fixed bound would end a joiner of a large model for ever; each checksum takes from the pause."""
    given: list[float] = []

    def watched(request: FetchRequest, seconds: float) -> Feed:
        given.append(seconds)
        return fetch(request, patient(30))

    def again(block: memoryview) -> bytes:
        raise AssertionError("the bytes that arrived were compared with their name already")

    monkeypatch.setattr(module, "fetch", watched)
    monkeypatch.setattr(module, "checksum", again)
    monkeypatch.setattr(module, "LEAST_SPEED", SIZE / 50)
    worker = make(1)
    worker.prepare(form(sources=(source(packed(7)),))).state.result(patient(30))
    assert given == [worker.handover._control.progress_seconds + 50]


def test_work_that_has_failed_keeps_no_memory_in_use_as_long_as_somebody_has_its_error() -> None:
    """Its frames have blocks of state: one of three buffers would be gone until Python collects them."""

    class Block:
        pass

    seen: list[weakref.ref[Block]] = []

    def fails() -> None:
        block = Block()
        seen.append(weakref.ref(block))
        raise ValueError("damaged")

    gc.collect()
    gc.disable()
    try:
        error = in_background(fails).exception(patient(30))
        assert isinstance(error, ValueError)
        assert seen[0]() is None
    finally:
        gc.enable()
