"""The audit: if it cannot tell a lost sample from an exact epoch, the promise of the project is worth nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dyntrain.training.audit import audit, main
from dyntrain.training.engine.store import split
from dyntrain.training.journal import Entry, GenerationSettled, JobBegun, JobFinished, LoopFinished
from dyntrain.training.ledger import Intent, IntentLog, LineLog, read_lines
from dyntrain.training.protocol.messages import MODULE, START, Position
from dyntrain.training.sampling.sharding import after_step, epoch_order, share
from hypothesis import given, settings
from hypothesis import strategies as st


def generation(number: int, position: Position) -> GenerationSettled:
    return GenerationSettled(
        number=number, members=("i-1",), position=position, at=0.0, pids={"i-1": 5}, holders=(), hosts={}
    )


def finished(position: Position) -> JobFinished:
    return JobFinished(position=position, at=0.0)


def begun(samples: int, batching: str = "fixed-global") -> JobBegun:
    return JobBegun(job="j", samples=samples, global_batch=2, seed=0, batching=batching, at=0.0)


def write(directory: Path, *entries: Entry) -> None:
    journal = LineLog(directory / "journal.jsonl")
    for entry in entries:
        journal.write(entry.line())


def simulate(data: st.DataObject, samples: int, batch: int, epochs: int) -> tuple[list[Entry], list[dict[str, Any]]]:
    """A job in which at any step a crash may throw the last steps away: the journal and intents that it would leave."""
    position, number = Position(epoch=0, offset=0, step=0), 1
    journal: list[Entry] = [generation(1, position)]
    intents: list[dict[str, Any]] = []
    history = [position]
    while position.epoch < epochs:
        workers = data.draw(st.integers(1, 3))
        order = epoch_order(samples, 0, position.epoch)
        for worker in range(workers):
            indices = share(order, batch, position.offset, worker, workers).tolist()
            intents.append({"g": number, "e": position.epoch, "o": position.offset, "s": position.step, "i": indices})
        if data.draw(st.integers(0, 4)) == 0:  # the step is void, and some before it may be lost with the state
            back = data.draw(st.integers(0, min(3, len(history) - 1)))
            history = history[: len(history) - back]
            position, number = history[-1], number + 1
            journal.append(generation(number, position))
        else:
            position = after_step(position, samples, batch)
            history.append(position)
        if len(journal) > 60:
            break
    journal.append(finished(position))
    return journal, intents


@settings(deadline=None)
@given(samples=st.integers(1, 20), batch=st.integers(1, 7), data=st.data())
def test_whatever_crashes_threw_away_the_audit_of_an_honest_ledger_is_exact(
    samples: int, batch: int, data: st.DataObject
) -> None:
    journal, intents = simulate(data, samples, batch, epochs=2)
    result = audit(journal, map(Intent.model_validate, intents), samples)
    assert (result.lost, result.doubled) == (0, 0)


@settings(deadline=None)
@given(samples=st.integers(2, 20), batch=st.integers(1, 7), data=st.data())
def test_a_missing_intent_is_found(samples: int, batch: int, data: st.DataObject) -> None:
    order, position, intents = epoch_order(samples, 0, 0), START, []
    while position.epoch == 0:
        intents.append(
            {
                "g": 1,
                "e": 0,
                "o": position.offset,
                "s": position.step,
                "i": share(order, batch, position.offset, 0, 1).tolist(),
            }
        )
        position = after_step(position, samples, batch)
    journal = [generation(1, START), finished(position)]
    missing = intents.pop(data.draw(st.integers(0, len(intents) - 1)))
    assert audit(journal, map(Intent.model_validate, intents), samples).lost == len(missing["i"])
    assert audit(journal, map(Intent.model_validate, [*intents, missing, missing]), samples).doubled == len(
        missing["i"]
    )


def test_each_loops_epochs_are_as_long_as_it_said_and_the_one_that_was_ended_early_is_no_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, following = Position(epoch=1, offset=2, step=2), Position(epoch=2, offset=0, step=2)
    further = begun(2).model_copy(update={"from_epoch": 2})
    write(
        tmp_path,
        begun(3),
        generation(1, START),
        LoopFinished(loop=1, reached=cut, holders=("i-1",), writer="i-1", at=0.0),
        further,
        generation(2, following).model_copy(update={"loop": 1}),
        finished(Position(epoch=3, offset=0, step=3)),
    )
    log = IntentLog(tmp_path, "i-1", 5)
    log.append_intent(1, START, [2, 0, 1])
    log.append_intent(1, Position(epoch=1, offset=0, step=1), [1, 0])
    log.append_intent(2, following, [1])
    assert main([str(tmp_path)]) == 1
    assert "2 epochs of 3 samples, from epoch 2 on of 2: 1 lost, 0 doubled" in capsys.readouterr().out
    log.append_intent(2, following, [0])
    assert main([str(tmp_path)]) == 0


def test_a_torn_line_swallows_neither_itself_nor_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    LineLog(path).append({"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "cut')
    LineLog(path).append({"n": 3})
    assert [line["n"] for line in read_lines(path)] == [1, 3]


@pytest.mark.parametrize(("indices", "code"), [([0, 1, 2], 0), ([0, 1], 1), ([0, 1, 2, 2], 1)])
def test_the_command_says_exact_or_not_by_its_exit_code(
    tmp_path: Path, indices: list[int], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, begun(3), generation(1, START), finished(Position(epoch=1, offset=0, step=1)))
    IntentLog(tmp_path, "i-1", 5).append_intent(1, START, indices)
    assert main([str(tmp_path), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exact"] is (code == 0)


def test_face_the_ledger_of_a_module_job_is_refused_with_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its iterators choose the samples: a verdict over what it cannot know would be a lie."""
    write(tmp_path, begun(1, batching=MODULE), generation(1, START))
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path), "--samples", "5"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "Module job" in lines[0]


def test_a_folder_without_a_journal_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no journal" in capsys.readouterr().err


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 20))
def test_parts_cover_each_gradient_once_and_stay_below_the_limit(sizes: list[int], limit: int) -> None:
    parts = split([(str(i), (size,), "float32") for i, size in enumerate(sizes)], limit=limit)
    for i, size in enumerate(sizes):
        own = [part for part in parts if part.key == str(i)]
        assert [element for part in own for element in range(part.start, part.start + part.length)] == list(range(size))
        assert all(part.length <= limit for part in own)
    assert len({part.number for part in parts}) == len(parts)
