"""What a worker tells of its steps and of its script's failures: once, and with where it was."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from bytes_state import AT
from coordinated_bed import HERE, Worker, form, go_on, worker_in
from dyntrain.training.protocol.messages import START, Go, Leave, LoopOver, Position
from dyntrain.training.protocol.node_messages import REFUSED
from dyntrain.training.worker.membership import coordinated as module
from dyntrain.training.worker.refused import Refused, Unrecoverable
from dyntrain.training.worker.state.memory import Memory

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


# ---- steps


def test_the_first_step_of_each_generation_is_told_once_and_a_pause_by_who_was_there_before(worker: Worker) -> None:
    worker.trains()
    membership = worker.membership
    membership.stepped(AT)
    membership.stepped(AT)
    [first] = worker.line.of("first_step")
    assert (first.generation, first.pause) == (2, None), "a joiner has made nobody wait"
    worker.check_in(LATER, form(3, LATER), Go(generation=3), go_on(LATER, 3))
    membership.stepped(LATER)
    membership.stepped(LATER)
    _, second = worker.line.of("first_step")
    assert second.generation == 3
    assert second.pause is not None
    assert second.pause >= 0
    assert {"teardown", "safe", "wait", "state", "agree", "first_step"} <= second.phases.keys()


def test_progress_is_told_at_most_once_a_second_with_how_fast_it_goes(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    worker.trains()
    for tenth in range(1, 36):
        now = 1000.0 + tenth / 10 + 0.01
        worker.membership.intend(AT, np.arange(4))
        worker.membership.stepped(AT.model_copy(update={"step": tenth}))
    messages = worker.line.of("progress")
    assert [message.position.step for message in messages] == [10, 20, 30]
    assert [message.samples_per_second for message in messages] == pytest.approx([40.0] * 3, rel=0.01)


def test_what_a_worker_is_about_to_train_on_stands_in_the_ledger_before_it_steps(worker: Worker) -> None:
    worker.trains()
    worker.membership.intend(AT, np.array([5, 3, 8]))
    worker.membership.intend(LATER, np.array([1]))
    [ledger] = worker.membership._folder.ledger.glob(f"{HERE}-*.intents.jsonl")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [(line["g"], line["e"], line["o"], line["s"], line["i"]) for line in lines] == [
        (2, 1, 0, 2, [5, 3, 8]),
        (2, 2, 0, 4, [1]),
    ]


@pytest.mark.parametrize("taken", [0, 6])
def test_running_statistics_are_weighted_by_what_this_worker_took(worker: Worker, taken: int) -> None:
    """The engine's other worker says the same; one that took nothing must not pull the others' towards its own."""
    given: list[Any] = []
    worker.state.statistics = lambda: (np.array([2.0]), np.array([3.0]))  # type: ignore[method-assign]
    worker.state.set_statistics = lambda means, variances: given.append((means.tolist(), variances.tolist()))  # type: ignore[method-assign]
    worker.state.gradient_keys = (("0", (2,), "float32"), ("1", (3,), "float32"))
    sums: list[Any] = []
    pushpull = worker.engine.pushpull

    def summed(key: Any, value: Any) -> None:
        sums.append((key, value.asnumpy().tolist()))
        pushpull(key, value)

    worker.engine.pushpull = summed  # type: ignore[method-assign, assignment]
    worker.trains()
    exchanged: list[Any] = []
    run = worker.membership._guard.run
    worker.membership._guard.run = lambda *arguments, **more: (exchanged.append(more), run(*arguments, **more))[1]  # type: ignore[method-assign]
    worker.membership.count(taken)
    worker.membership.average_statistics(LATER)
    assert sums == [("statistics", [taken, 2.0 * taken, 7.0 * taken])]
    assert exchanged == [{"first": 2}], "behind the keys of the gradients"
    assert [key for key, _, _ in worker.engine.keys] == ["0", "1", "statistics"]
    assert given == ([([2.0], [3.0])] if taken else [])


def test_a_net_without_running_statistics_has_no_exchange_for_them(worker: Worker) -> None:
    worker.trains()
    pushed: list[Any] = []
    worker.engine.pushpull = lambda *given: pushed.append(given)  # type: ignore[method-assign, assignment]
    worker.membership.average_statistics(LATER)
    assert (worker.engine.keys, pushed) == ([], [])


def test_how_far_a_state_has_come_is_told_at_once_and_then_once_a_second(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one comes in thousands of chunks."""
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    worker.trains()
    tell = worker.membership._fetching_reporter(3)
    for tenth in range(35):
        now = 1000.0 + tenth / 10 + 0.01
        tell(tenth, 50)
    messages = worker.line.of("fetching")
    assert [(message.generation, message.received, message.size) for message in messages] == [
        (3, part, 50) for part in (0, 10, 20, 30)
    ]


# ---- failures


def test_a_failure_of_the_script_is_told_once_with_where_it_was(worker: Worker) -> None:
    worker.trains()
    worker.membership.in_hand = lambda: "the batch had 7 samples"
    worker.membership.failed(ValueError("shape " + "x" * 5000))
    worker.membership.failed(ValueError("another"))
    [failure] = worker.line.of("script_failed")
    assert (failure.generation, failure.position) == (2, AT)
    assert failure.error.startswith("ValueError: shape xx")
    assert len(failure.error) == 2000
    assert "the batch had 7 samples" in failure.traceback
    assert worker.membership.failure_reported


def test_of_a_long_traceback_the_end_is_told(worker: Worker) -> None:
    """Where it was raised, and what."""
    worker.trains()
    worker.membership.failed(ValueError("y" * 30_000 + "the end"))
    [failure] = worker.line.of("script_failed")
    assert len(failure.traceback) == 20_000
    assert failure.traceback.strip().endswith("the end")


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_what_ends_a_script_and_is_no_failure_is_not_told(worker: Worker, error: BaseException) -> None:
    worker.trains()
    worker.membership.failed(error)
    assert worker.line.sent == []
    assert not worker.membership.failure_reported


@pytest.mark.parametrize("error", [Refused("cannot be divided"), Unrecoverable("differs")])
def test_the_jobs_own_refusals_say_what_to_do_and_nothing_beside(worker: Worker, error: Exception) -> None:
    worker.trains()
    worker.membership.in_hand = lambda: "the batch had 7 samples"
    worker.membership.failed(error)
    assert "the batch had" not in worker.line.of("script_failed")[0].traceback


@pytest.mark.parametrize(("stepped", "past_help"), [(False, True), (True, False)])
def test_what_is_refused_is_past_help_before_its_loops_first_step_and_not_after_it(
    worker: Worker, stepped: bool, past_help: bool
) -> None:
    """Before it every try ends alike; later one may be a node's trouble."""
    worker.trains(START)
    if stepped:
        worker.check_in(AT, go_on(AT))
    worker.membership.failed(Refused("a batch that cannot be divided"))
    assert worker.line.of("script_failed")[0].past_help == past_help


def test_before_the_job_is_entered_a_failure_is_in_the_exit_code_where_it_is_the_jobs_own(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    def raised(error: BaseException) -> int | None:
        try:
            sys.excepthook(type(error), error, None)
        except SystemExit as ended:
            return ended.code  # type: ignore[return-value]
        return None

    with pytest.raises(ValueError, match="underscore") as caught:
        Memory(_hidden=1)
    assert [raised(error) for error in (caught.value, ValueError("the script's own"))] == [REFUSED, None]
    assert not worker.membership.failure_reported
    worker.trains()
    assert raised(caught.value) is None, "then it is told"
    assert [message.type for message in worker.line.sent] == ["script_failed"]
    assert "the script's own" in capsys.readouterr().err, "as without a job"


def test_a_process_that_ends_waits_for_nothing_that_is_in_flight(worker: Worker) -> None:
    worker.trains()
    worker.membership.close()
    assert worker.log == ["abandoned"]
    assert worker.line.closed
