"""A worker as its handover alone, whose state is so many bytes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from bytes_state import AT, Bytes, packed
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.messages import Form, Position
from dyntrain.training.worker.membership.handover import Handover, StateTask
from dyntrain.training.worker.state.checkpoint import CommitDamaged, CommitStore
from dyntrain.training.worker.state.safe_state import SafeStates

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
        self.preparation: Future[StateTask] = Future()
        self.observations: list[tuple[str, bool]] = []
        self.progress: list[tuple[int, int]] = []

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
        """From here on `observations` has, for each thing that is done to the state, whether the worker would have said
        just before it that it is prepared.
        """
        seal = SafeStates.seal

        def ask(what: str) -> None:
            self.observations.append((what, self.preparation.result(patient(30)).safe_within(0)))

        def watched(states: SafeStates, *given: Any) -> None:
            ask("sealed")
            seal(states, *given)

        monkeypatch.setattr(SafeStates, "seal", watched)
        self.state.seen = ask

    def prepare(self, order: Form) -> StateTask:
        preparation = self.handover.prepare(order, self.commits, lambda got, size: self.progress.append((got, size)))
        self.preparation.set_result(preparation)
        return preparation


def form(generation: int = 3, position: Position = AT, **more: Any) -> Form:
    fields = {"number": 0, "workers": 2, "environment": {}, "source": HERE, "transfer_token": TOKEN, **more}
    return Form(generation=generation, position=position, **fields)


def of_a_commit(worker: Worker) -> Form:
    return form(commit=worker.commits.write(AT.step, 2, packed(7)))


Make = Callable[[int], Worker]
