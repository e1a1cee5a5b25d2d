"""Which of the states in a node's memory counts, and which buffer is written next: the newest whole one must be there
at any moment, whoever dies, and nothing else may be taken for it.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.state import safe_state as module
from dyntrain.training.worker.state.block import HEADER_LENGTH_BYTES, StateError, checksum, header_of
from dyntrain.training.worker.state.checkpoint import CommitDamaged
from dyntrain.training.worker.state.equal import checksums, digest
from dyntrain.training.worker.state.safe_state import PAGE_BYTES, RESERVE_BYTES, SafeStates, Seal
from hypothesis import given
from hypothesis import strategies as st

SIZE = 1000


def at(step: int) -> Position:
    return Position(epoch=0, offset=step, step=step)


@pytest.fixture
def memory() -> Iterator[SafeMemory]:
    memory = SafeMemory()
    yield memory
    memory.close()


def keep(states: SafeStates, generation: int, step: int, fill: int) -> memoryview:
    block = states.allocate(SIZE)
    block[:] = bytes([fill]) * SIZE
    states.seal(block, generation, at(step))
    return block


def left(memory: SafeMemory, job: str = "j") -> tuple[int, int, int] | None:
    """As the next process finds it: generation, step, and what is in it."""
    states = SafeStates(memory.descriptors, job)
    newest = states.newest()
    return (newest.generation, newest.position.step, states.read(newest.name)[-1]) if newest else None


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=9))
def test_after_any_moment_of_any_history_the_newest_state_that_was_sealed_is_there(
    history: list[tuple[int, int, bool]],
) -> None:
    """The higher generation counts, whatever its step: it may have gone back. Of one generation, the later step. Each
    is (generation, step, whether the worker dies before its seal).
    """
    memory, best = SafeMemory(), None
    try:
        states = SafeStates(memory.descriptors, "j")
        for fill, (generation, step, dies) in enumerate(history, start=1):
            block = states.allocate(SIZE)
            block[: SIZE // 2] = bytes([fill]) * (SIZE // 2)
            assert left(memory) == best, "a worker that is killed now"
            if dies:
                del block
                states = SafeStates(memory.descriptors, "j")
                continue
            block[:] = bytes([fill]) * SIZE
            states.seal(block, generation, at(step))
            del block
            if best is None or (generation, step) > best[:2]:
                best = (generation, step, fill)
            elif (generation, step) == best[:2]:
                best = left(memory)  # either is that state
            newest = left(memory)
            assert newest is not None
            assert newest == best
    finally:
        memory.close()


def test_what_is_in_use_is_kept_as_long_as_anybody_has_it_and_no_longer(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    held = [keep(states, generation, 0, generation) for generation in (1, 2, 3)]
    gc.disable()
    try:
        plain = keep(states, 4, 0, 4)
        assert left(memory) == (3, 0, 3), "the fourth is in the worker's own memory"
        del held[1], plain
        fifth = keep(states, 5, 0, 5)
        assert left(memory) == (5, 0, 5)
        assert [bytes(block)[-1] for block in (*held, fifth)] == [1, 3, 5]
    finally:
        gc.enable()


def test_a_state_of_another_job_is_neither_found_nor_read_and_its_buffer_may_be_taken(memory: SafeMemory) -> None:
    before = SafeStates(memory.descriptors, "before")
    for fill in (1, 2, 3):
        keep(before, 9, 9, fill)
    states = SafeStates(memory.descriptors, "j")
    assert states.newest() is None
    theirs = before.newest()
    assert theirs is not None
    with pytest.raises(CommitDamaged, match="gone"):
        states.read(theirs.name)
    for generation in (1, 2, 3):
        keep(states, generation, 0, generation)
        assert left(memory) == (generation, 0, generation)


@pytest.mark.parametrize("torn", [b"", b"{", b'{"job": "j"}', b"\xff" * PAGE_BYTES])
def test_a_seal_that_was_being_written_is_none(memory: SafeMemory, torn: bytes) -> None:
    states = SafeStates(memory.descriptors, "j")
    keep(states, 1, 0, 1)
    keep(states, 2, 0, 2)
    [newest] = [each for each in memory.descriptors if b'"generation":2' in os.pread(each, PAGE_BYTES, 0)]
    os.pwrite(newest, torn.ljust(PAGE_BYTES, b"\0"), 0)
    assert left(memory) == (1, 0, 1)


def test_a_seal_of_more_than_there_is_memory_is_none(memory: SafeMemory) -> None:
    """As of a file that was cut, where to read on would end the process."""
    states = SafeStates(memory.descriptors, "j")
    keep(states, 1, 0, 1)
    [sealed] = [each for each in memory.descriptors if os.pread(each, PAGE_BYTES, 0).rstrip(b"\0")]
    length = os.fstat(sealed).st_size
    for more, accepted in ((0, True), (1, False)):
        seal = Seal(job="j", generation=1, position=at(0), size=length - PAGE_BYTES + more, checksum="x")
        os.pwrite(sealed, seal.model_dump_json().encode().ljust(PAGE_BYTES, b"\0"), 0)
        assert (SafeStates(memory.descriptors, "j").newest() is not None) == accepted


@pytest.mark.parametrize("byte", [0, SIZE // 2, SIZE - 1])
def test_one_wrong_bit_anywhere_is_damage(memory: SafeMemory, byte: int) -> None:
    block = keep(SafeStates(memory.descriptors, "j"), 1, 0, 1)
    block[byte] ^= 1
    with pytest.raises(CommitDamaged, match="its checksum is wrong"):
        left(memory)


def test_the_name_that_a_state_came_with_is_its_name(memory: SafeMemory) -> None:
    """It was compared with the bytes where they arrived; to add them up again would take from the pause."""
    states = SafeStates(memory.descriptors, "j")
    states.seal(states.allocate(SIZE), 1, at(0), "its name")
    newest = states.newest()
    assert newest is not None
    assert newest.name == "its name"
    name = checksum(keep(states, 2, 0, 2)).hex()
    newest = states.newest()
    assert newest is not None
    assert newest.name == name


def test_memory_beyond_half_of_what_is_free_is_not_taken(memory: SafeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """These files have no limit of their own: the kernel would kill somebody."""
    states = SafeStates(memory.descriptors, "j")
    wanted = PAGE_BYTES + SIZE + RESERVE_BYTES
    monkeypatch.setattr(module, "available_memory", lambda: 2 * wanted)
    states.reserve(SIZE)
    assert states.has_memory
    assert [os.fstat(descriptor).st_size for descriptor in memory.descriptors] == [wanted, wanted, 0]
    more = SIZE + RESERVE_BYTES + 100
    monkeypatch.setattr(module, "available_memory", lambda: 2 * (RESERVE_BYTES + 100) - 1)
    states.reserve(more)
    assert not states.has_memory, "no state is safe from here on, and commits are waited for"
    monkeypatch.setattr(module, "available_memory", lambda: 2 * (RESERVE_BYTES + 100))
    fresh = SafeStates(memory.descriptors, "j")
    fresh.reserve(more)
    assert fresh.has_memory, "what the file has already is not taken a second time"


def test_what_can_be_had_without_swapping_is_read_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  9000 kB\nMemFree:   10 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(module, "MEMINFO", info)
    assert module.available_memory() == 3000 * 1024
    info.write_text("MemTotal:  9000 kB\n")
    assert module.available_memory() == 0, "where nobody knows, nothing is taken"


# ---- the header of a packed state, and its checksums


def block_of(
    offset: int = 4, values: str = "a", counts: int = 1, arrays: bytes = b"abcdefgh", step: int = 3, summed: int = 0
) -> bytes:
    """Two arrays that must be equal and one of the worker's own."""
    header = json.dumps(
        {
            "layout": "x",
            "position": {"epoch": 1, "offset": offset, "step": step},
            "scalars": {"values": values, "untouched": values, "counts": counts},
            "own": {"memory": values, "summed": {"0": [[summed], [summed]]}},
            "arrays": [["p0", [2], "uint8"], ["o0.0.0", [], "float32"], ["a0", [2], "uint8"]],
        }
    ).encode()
    return len(header).to_bytes(HEADER_LENGTH_BYTES, "big") + header + arrays


def test_workers_are_compared_by_all_that_must_be_equal_and_by_nothing_else() -> None:
    whole = checksums(block_of())
    assert len(whole) == 3
    assert checksums(block_of(arrays=b"abcdefXX")) == whole, "running statistics are each worker's own"
    for changed, which in (
        ({"arrays": b"aXcdefgh"}, [1]),
        ({"arrays": b"abXdefgh"}, [2]),
        ({"counts": 2}, [0]),
        ({"values": "b"}, [0]),
        ({"offset": 5}, [0]),
        ({"step": 4}, [0]),
        ({"summed": 1}, [0]),
    ):
        sums = checksums(block_of(**changed))  # type: ignore[arg-type]
        assert [i for i in range(3) if sums[i] != whole[i]] == which, changed
        assert digest(sums) != digest(whole)


def test_where_an_epoch_begins_one_script_may_have_set_its_rate_already_and_another_not() -> None:
    assert checksums(block_of(offset=0)) == checksums(block_of(offset=0, values="b"))
    assert checksums(block_of(offset=0)) != checksums(block_of(offset=0, counts=2))


@given(st.integers(0, 2**64 - 1), st.binary(max_size=60))
def test_bytes_that_begin_with_any_length_are_a_state_or_an_error_that_says_so(size: int, rest: bytes) -> None:
    try:
        _, begin = header_of(size.to_bytes(HEADER_LENGTH_BYTES, "big") + rest)
    except StateError:
        return
    assert begin == HEADER_LENGTH_BYTES + size <= HEADER_LENGTH_BYTES + len(rest), "what happens to be JSON"


def test_a_header_may_be_all_there_is() -> None:
    assert header_of((2).to_bytes(HEADER_LENGTH_BYTES, "big") + b"{}") == ({}, HEADER_LENGTH_BYTES + 2)
    with pytest.raises(StateError, match="no header"):
        header_of((3).to_bytes(HEADER_LENGTH_BYTES, "big") + b"{}")
    with pytest.raises(StateError, match="no header"):
        header_of((0).to_bytes(HEADER_LENGTH_BYTES, "big") + b"{}")
