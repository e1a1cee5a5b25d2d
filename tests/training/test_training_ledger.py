"""The audit: if it cannot tell a lost sample from an exact epoch, the promise of the project is worth nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.audit import audit, main
from training.engine.store import split
from training.ledger import IntentLog, LineLog, read_lines
from training.protocol import MODULE, Position
from training.sharding import after_step, epoch_order, share

START = {"epoch": 0, "offset": 0, "step": 0}


def generation(number: int, position: Position) -> dict[str, Any]:
    return {"kind": "generation", "number": number, "position": position.model_dump()}


def simulate(data: st.DataObject, samples: int, batch: int, epochs: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A job in which at any step a crash may throw the last steps away: the journal and intents that it would leave."""
    position, number = Position(epoch=0, offset=0, step=0), 1
    journal, intents = [generation(1, position)], []
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
    journal.append({"kind": "finished", "position": position.model_dump()})
    return journal, intents


@given(samples=st.integers(1, 20), batch=st.integers(1, 7), data=st.data())
def test_whatever_crashes_threw_away_the_audit_of_an_honest_ledger_is_exact(samples: int, batch: int, data: st.DataObject) -> None:
    journal, intents = simulate(data, samples, batch, epochs=2)
    result = audit(journal, intents, samples)
    assert (result.lost, result.doubled) == (0, 0)


@given(samples=st.integers(2, 20), batch=st.integers(1, 7), data=st.data())
def test_a_missing_intent_is_found(samples: int, batch: int, data: st.DataObject) -> None:
    order, position, intents = epoch_order(samples, 0, 0), Position(**START), []
    while position.epoch == 0:
        intents.append({"g": 1, "e": 0, "o": position.offset, "s": position.step, "i": share(order, batch, position.offset, 0, 1).tolist()})
        position = after_step(position, samples, batch)
    journal = [generation(1, Position(**START)), {"kind": "finished", "position": position.model_dump()}]
    missing = intents.pop(data.draw(st.integers(0, len(intents) - 1)))
    assert audit(journal, intents, samples).lost == len(missing["i"])
    assert audit(journal, [*intents, missing, missing], samples).doubled == len(missing["i"])


def test_a_torn_line_swallows_neither_itself_nor_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    LineLog(path).append({"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "cut')
    LineLog(path).append({"n": 3})
    assert [line["n"] for line in read_lines(path)] == [1, 3]


@pytest.mark.parametrize(("indices", "code"), [([0, 1, 2], 0), ([0, 1], 1), ([0, 1, 2, 2], 1)])
def test_the_command_says_exact_or_not_by_its_exit_code(tmp_path: Path, indices: list[int], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    journal = LineLog(tmp_path / "journal.jsonl")
    for record in ({"kind": "job", "samples": 3}, {"kind": "generation", "number": 1, "position": START}):
        journal.append(record)
    journal.append({"kind": "finished", "position": {"epoch": 1, "offset": 0, "step": 1}})
    IntentLog(tmp_path, "i-1", 5).intend(1, Position(**START), indices)
    assert main([str(tmp_path), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exact"] is (code == 0)


def test_face_the_ledger_of_a_module_job_is_refused_with_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its iterators choose the samples: a verdict over what it cannot know would be a lie."""
    journal = LineLog(tmp_path / "journal.jsonl")
    journal.append({"kind": "job", "samples": 1, "batching": MODULE})
    journal.append({"kind": "generation", "number": 1, "position": START})
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path), "--samples", "5"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "Module job" in said[0]


def test_a_folder_without_a_journal_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no journal" in capsys.readouterr().err


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 20))
def test_parts_cover_each_gradient_once_and_stay_below_the_limit(sizes: list[int], limit: int) -> None:
    parts = split([(str(i), (size,), "float32") for i, size in enumerate(sizes)], limit)
    for i, size in enumerate(sizes):
        own = [part for part in parts if part.key == str(i)]
        assert [element for part in own for element in range(part.start, part.start + part.length)] == list(range(size))
        assert all(part.length <= limit for part in own)
    assert len({part.name for part in parts}) == len(parts)
