"""Memory that outlives a worker: a state is there for the next process whole or not at all, and gone with the
supervisor.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory, inherited_memory
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.state import safe_state
from dyntrain.training.worker.state.checkpoint import CommitDamaged
from dyntrain.training.worker.state.safe_state import PAGE_BYTES, RESERVE_BYTES, SafeStates

AT = Position(epoch=1, offset=0, step=2)
SIZE = 100_000


@pytest.fixture
def memory() -> Iterator[SafeMemory]:
    memory = SafeMemory()
    yield memory
    memory.close()


def kept(states: SafeStates, fill: int, generation: int = 1, size: int = SIZE) -> memoryview:
    block = states.allocate(size)
    block[:] = bytes([fill]) * size
    states.seal(block, generation, AT)
    return block


def test_the_next_process_finds_the_state_that_was_sealed_last(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    for generation in (1, 2, 3):
        kept(states, generation, generation)
    following = SafeStates(memory.descriptors, "j")
    left = following.newest()
    assert left is not None
    assert (left.generation, left.position) == (3, AT)
    assert bytes(following.read(left.name)) == bytes([3]) * SIZE


def test_a_worker_that_dies_while_it_copies_leaves_the_state_before_and_no_half_one(memory: SafeMemory) -> None:
    script = """
import os, signal
from dyntrain.training.protocol.messages import Position
from dyntrain.training.host.safe_memory import inherited_memory
from dyntrain.training.worker.state.safe_state import SafeStates
states = SafeStates(inherited_memory(), "j")
for generation in (1, 2):
    block = states.allocate(1000)
    block[:500] = b"x" * 500
    if generation == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    states.seal(block, generation, Position(epoch=1, offset=0, step=2))
    del block
"""
    environment = {**os.environ, **memory.environment}
    died = subprocess.run(
        [sys.executable, "-c", script], env=environment, pass_fds=memory.descriptors, timeout=patient(60), check=False
    )
    left = SafeStates(memory.descriptors, "j").newest()
    assert (died.returncode, left and left.generation) == (-9, 1)


def test_a_damaged_state_is_refused(memory: SafeMemory) -> None:
    kept(SafeStates(memory.descriptors, "j"), 7)
    following = SafeStates(memory.descriptors, "j")
    left = following.newest()
    assert left is not None
    for descriptor in memory.descriptors:
        if os.fstat(descriptor).st_size:
            os.pwrite(descriptor, b"\0", PAGE_BYTES + SIZE // 2)
    with pytest.raises(CommitDamaged, match="step 2 on this host is damaged"):
        following.read(left.name)
    with pytest.raises(CommitDamaged, match="is gone"):
        following.read("another")


def test_a_state_of_another_job_is_nobodys(memory: SafeMemory) -> None:
    kept(SafeStates(memory.descriptors, "j"), 7)
    assert SafeStates(memory.descriptors, "another").newest() is None


def generation_left(states: SafeStates) -> int | None:
    left = states.newest()
    return left.generation if left else None


def test_a_state_that_is_still_read_is_not_written_over(memory: SafeMemory) -> None:
    """A commit on slow storage takes longer than it takes to the next two changes."""
    states = SafeStates(memory.descriptors, "j")
    committing = kept(states, 1, 1)
    for generation in (2, 3, 4):
        kept(states, generation, generation)
    assert bytes(committing) == bytes([1]) * SIZE
    offered, joined, unsafe = kept(states, 5, 5), kept(states, 6, 6), kept(states, 7, 7)
    assert [bytes(block) for block in (offered, joined, unsafe)] == [bytes([fill]) * SIZE for fill in (5, 6, 7)]
    assert generation_left(states) == 6, "all buffers are in use: the fourth is plain memory"


def test_there_is_a_whole_state_at_any_moment_also_while_a_slow_commit_reads_an_earlier_one(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    committing = kept(states, 1, 1)
    for generation in (2, 3, 4, 5):
        half = states.allocate(SIZE)
        assert generation_left(SafeStates(memory.descriptors, "j")) == generation - 1, "a worker that is killed now"
        states.seal(half, generation, AT)
        del half
    assert bytes(committing) == bytes([1]) * SIZE


def test_a_state_that_is_sealed_late_does_not_make_way_for_itself(memory: SafeMemory) -> None:
    """That of a boundary is sealed beside the steps; a loss and a change may come before it is."""
    states = SafeStates(memory.descriptors, "j")
    late = states.allocate(SIZE)
    kept(states, 2, 2)
    states.seal(late, 1, AT)
    del late
    half = states.allocate(SIZE)
    assert generation_left(SafeStates(memory.descriptors, "j")) == 2, "a worker that is killed now"
    assert len(half) == SIZE


def test_of_one_generations_states_the_one_of_its_last_boundary_is_left(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    for step in (2, 3, 4, 5):
        states.seal(states.allocate(SIZE), 1, AT.model_copy(update={"step": step}))
    following = SafeStates(memory.descriptors, "j")
    half = following.allocate(SIZE)
    left = following.newest()
    assert left is not None
    assert left.position.step == 5, "and the process that comes after does not write over it first"
    assert len(half) == SIZE


def test_the_third_state_takes_memory_only_where_commits_are_slow(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    states.reserve(SIZE)
    for generation in range(6):
        kept(states, generation, generation)
    assert [os.fstat(descriptor).st_size > 0 for descriptor in memory.descriptors] == [True, True, False]


def test_memory_is_taken_once_and_grows_with_the_state(memory: SafeMemory) -> None:
    states = SafeStates(memory.descriptors, "j")
    states.reserve(SIZE)
    before = [os.fstat(descriptor).st_size for descriptor in memory.descriptors]
    for generation in range(4):
        kept(states, generation, generation, SIZE + 1000)
    assert [os.fstat(descriptor).st_size for descriptor in memory.descriptors] == before, "no change waits for memory"
    assert bytes(kept(states, 9, 9, SIZE + 2 * RESERVE_BYTES)) == bytes([9]) * (SIZE + 2 * RESERVE_BYTES)


@contextmanager
def no_room() -> Iterator[None]:
    """Not for longer than needed: pytest writes to files, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_training_goes_on_unsafe_and_says_so_once(
    memory: SafeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    states = SafeStates(memory.descriptors, "j")
    with no_room():
        states.reserve(SIZE)
        blocks = [bytes(kept(states, fill)) for fill in (1, 2)]
    assert blocks == [bytes([fill]) * SIZE for fill in (1, 2)]
    assert states.newest() is None
    own_records = [record for record in caplog.records if record.name == safe_state.__name__]
    assert [record.getMessage() for record in own_records] == [
        "no shared memory for the state ([Errno 27] File too large): a restart continues from the last commit"
    ]


def test_a_process_without_a_supervisor_keeps_its_state_to_itself() -> None:
    states = SafeStates(inherited_memory(), "j")
    assert bytes(kept(states, 3)) == bytes([3]) * SIZE
    assert states.newest() is None


def test_nothing_is_left_of_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """Nobody could sweep it up after SIGKILL: hundreds of megabytes would be lost to the host."""
    script = """
import os, signal
from dyntrain.training.host.safe_memory import SafeMemory
memory = SafeMemory()
names = [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in memory.descriptors]
assert all("(deleted)" in name for name in names), names
os.kill(os.getpid(), signal.SIGKILL)
"""
    before = set(os.listdir("/dev/shm"))
    died = subprocess.run([sys.executable, "-c", script], timeout=patient(60), check=False)
    assert (died.returncode, {name for name in set(os.listdir("/dev/shm")) - before if "dyntrain" in name}) == (
        -9,
        set(),
    )
