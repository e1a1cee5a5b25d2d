"""How a worker comes by the state of a generation's first position: kept before anybody is lost, loaded by the next
process, never passed off.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from pydantic import SecretStr

import mxnet as mx  # isort: skip
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import Form, Position
from dyntrain.training.session.generation.origin import START
from dyntrain.training.worker.membership.background import in_background
from dyntrain.training.worker.membership.handover import Handover, WrongState
from dyntrain.training.worker.state.block import allocate
from dyntrain.training.worker.state.checkpoint import CommitDamaged, CommitStore
from dyntrain.training.worker.state.safe_state import PAGE_BYTES
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import gluon

HERE, HOST = "i-0000000a", "127.0.0.1"
AT = Position(epoch=1, offset=0, step=2)


def form(generation: int, position: Position = AT, safe: str | None = None) -> Form:
    return Form(
        generation=generation,
        number=0,
        workers=1,
        environment={},
        position=position,
        source=HERE,
        transfer_token=SecretStr("t"),
        safe=safe,
    )


class SlowState(TrainingState):
    """Is not copied before it may be."""

    may = threading.Event()

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        assert self.may.wait(patient(30))
        return super().pack(position, allocate)


class Process:
    """What a worker process has of it."""

    def __init__(
        self, memory: SafeMemory, value: float, folder: Path, kind: type[TrainingState] = TrainingState
    ) -> None:
        self.net = gluon.nn.Dense(2, in_units=3)
        self.net.initialize(mx.init.Constant(value))
        trainer: Any = gluon.Trainer(self.net.collect_params(), "sgd", {"momentum": 0.9}, kvstore=None)
        control = ControlFile(
            cluster="c",
            job="j",
            instance_id=HERE,
            private_ip=HOST,
            url="wss://x",
            certificate="",
            token=SecretStr("t"),
            mount=str(folder),
        )
        os.environ.update(memory.environment)
        self.handover = Handover(control)
        self.handover.open("j", kind(self.net, trainer))
        self.left = self.handover.newest()
        self.commits = CommitStore(folder)

    def weights(self) -> set[float]:
        return set(np.unique(self.net.weight.data().asnumpy()))


@pytest.fixture
def memory() -> Iterator[SafeMemory]:
    memory = SafeMemory()
    yield memory
    memory.close()


def killed_inside_the_formation(memory: SafeMemory, folder: Path) -> None:
    first = Process(memory, 7.0, folder)
    assert first.left is None
    first.handover.note_position(AT)
    assert first.handover.prepare(form(2), first.commits).safe_within(patient(30))
    first.handover.close()


def test_t9_the_next_process_goes_on_with_what_was_kept_before_the_word_prepared(
    memory: SafeMemory, tmp_path: Path
) -> None:
    killed_inside_the_formation(memory, tmp_path)
    second = Process(memory, 0.5, tmp_path)
    assert second.left is not None
    assert (second.left.generation, second.left.position) == (2, AT)
    preparation = second.handover.prepare(form(3, safe=second.left.name), second.commits)
    assert preparation.safe_within(patient(30))
    assert second.weights() == {7.0}
    assert preparation.state.result(patient(30)).digest
    assert Process(memory, 0.5, tmp_path).left == second.left.model_copy(update={"generation": 3}), "and is safe again"


def test_what_was_kept_at_a_boundary_is_there_for_the_next_process_and_for_the_commit(
    memory: SafeMemory, tmp_path: Path
) -> None:
    """A commit takes longer than a short segment; until it is written, nothing else is left of what was trained since
    the one before.
    """
    later = Position(epoch=1, offset=4, step=4)
    first = Process(memory, 7.0, tmp_path)
    first.handover.note_position(AT)
    first.handover.prepare(form(2), first.commits).state.result(patient(30))
    first.net.weight.set_data(mx.nd.full((2, 3), 8.0))
    block = first.handover.keep(2, later)
    first.net.weight.set_data(mx.nd.full((2, 3), 9.0))
    first.handover.sealing.result(patient(30))
    first.handover.close()
    second = Process(memory, 0.5, tmp_path)
    assert second.left is not None
    assert (second.left.generation, second.left.position) == (2, later)
    assert second.handover.prepare(form(3, later, safe=second.left.name), second.commits).safe_within(patient(30))
    assert second.weights() == {8.0}
    name = first.commits.write(later.step, 2, block)
    assert first.commits.read(name) == bytes(block), "the next process has not written over what is committed"


def test_changes_and_boundaries_leave_no_buffer_in_use(memory: SafeMemory, tmp_path: Path) -> None:
    """Else there would soon be none left, and states would not be safe any more."""
    gc.collect()
    gc.disable()
    try:
        process = Process(memory, 7.0, tmp_path, SlowState)
        for generation in range(2, 8):
            process.handover.note_position(AT)
            SlowState.may.clear()
            preparation = process.handover.prepare(form(generation), process.commits)
            SlowState.may.set()
            preparation.state.result(patient(30))
            del preparation
            for _ in range(3):
                process.handover.keep(generation, AT)
                process.handover.sealing.result(patient(30))
            newest = process.handover.newest()
            assert newest is not None
            assert newest.generation == generation
    finally:
        gc.enable()


def test_t9_who_holds_the_state_is_not_prepared_before_it_is_copied(memory: SafeMemory, tmp_path: Path) -> None:
    """The word to go would take it into ps-lite, where it is killed when somebody else dies."""
    SlowState.may.clear()
    process = Process(memory, 7.0, tmp_path, SlowState)
    process.handover.note_position(AT)
    preparation = process.handover.prepare(form(2), process.commits)
    prepared = in_background(lambda: preparation.safe_within(patient(30)))
    with pytest.raises(TimeoutError):
        prepared.result(0.1)
    SlowState.may.set()
    assert prepared.result(patient(30))
    left = Process(memory, 0.5, tmp_path).left
    assert left is not None
    assert left.generation == 2


def test_t9_a_damaged_safe_state_is_told_before_anybody_forms(memory: SafeMemory, tmp_path: Path) -> None:
    killed_inside_the_formation(memory, tmp_path)
    second = Process(memory, 0.5, tmp_path)
    assert second.left is not None
    for descriptor in memory.descriptors:
        os.pwrite(descriptor, b"\1\2\3\4", PAGE_BYTES + 200)
    with pytest.raises(CommitDamaged):
        assert second.handover.prepare(form(3, safe=second.left.name), second.commits).safe_within(patient(30))
    assert second.weights() == {0.5}


def test_a_process_that_has_trained_does_not_pass_its_weights_off_as_the_jobs_beginning(
    memory: SafeMemory, tmp_path: Path
) -> None:
    """It was left out of a generation, and that was lost before the first commit: the job begins anew, with samples
    that it has seen.
    """
    process = Process(memory, 7.0, tmp_path)
    process.handover.note_position(AT)
    with pytest.raises(WrongState, match="of step 2, not 0"):
        assert process.handover.prepare(form(3, START), process.commits).safe_within(patient(30))
