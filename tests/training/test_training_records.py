"""The files that outlive a release: a coordinator started again after an update goes on from an older journal, plots
read old event logs, and nobody guesses what a newer release meant.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training import audit, events, journal
from dyntrain.training.coordinator.command import main
from dyntrain.training.coordinator.terms import CLAIM_FILE, Overtaken, TermJournal, read_journal
from dyntrain.training.layout import read_current_job
from dyntrain.training.ledger import EventLog, read_events, read_intents
from dyntrain.training.records import Record, Unreadable

CONTRACTS = Path(__file__).parents[1] / "contracts"
A = "i-0000000000000000a"
CLOSED = '{"kind": "closed", "at": 1.0}\n'
NEWER = '{"kind": "closed", "version": 2, "at": 1.0}\n'


@pytest.mark.parametrize(
    ("name", "kinds", "parse"),
    [("events.jsonl", events.Event, events.parse), ("journal.jsonl", journal.Entry, journal.FORMAT.parse)],
)
def test_each_kind_of_line_is_read_and_written_as_it_was(
    name: str, kinds: Any, parse: Callable[[dict[str, Any], object], Record]
) -> None:
    lines = (CONTRACTS / name).read_bytes().splitlines(keepends=True)
    records = [parse(json.loads(line), name) for line in lines]
    assert [record.line() for record in records] == lines
    assert {type(record) for record in records} == set(get_args(kinds)), "each kind has its line in the contract"


@pytest.mark.parametrize("name", ["events.jsonl", "journal.jsonl"])
def test_lines_of_before_there_were_versions_are_read(name: str) -> None:
    parse = events.parse if name == "events.jsonl" else journal.FORMAT.parse
    for line in (CONTRACTS / name).read_bytes().splitlines():
        fields = json.loads(line)
        old = {key: value for key, value in fields.items() if key != "version"}
        assert parse(old, name) == parse(fields, name) or "NaN" in line.decode()


def test_every_field_of_an_event_says_what_it_is() -> None:
    """Whoever draws a plot reads the schema, not the coordinator."""
    silent = [
        f"{kind.__name__}.{name}"
        for kind in get_args(events.Event)
        for name, field in kind.model_fields.items()
        if name != "event" and not field.description
    ]
    assert silent == []


def test_the_event_log_is_read_as_it_was_written_beside_a_torn_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", tmp_path / "elsewhere.jsonl")
    written = [events.NodeLost(instance=A, at=1.5), events.Failed(reason="no worker could start", at=2.5)]
    for event in written:
        log.append(event)
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "joi')
    assert [list(read_events(tmp_path / name)) for name in ("events.jsonl", "elsewhere.jsonl")] == [written, written]


def test_a_newer_journal_is_refused_with_the_file_the_version_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(CLOSED + NEWER)
    with pytest.raises(Unreadable) as caught:
        read_journal(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/journal.jsonl: written by a newer dyntrain, in version 2 of the journal; this one knows version 1 "
        "at most. Use the release that wrote it, on all nodes"
    )


def test_an_older_release_does_not_claim_a_job_whose_journal_it_cannot_read(tmp_path: Path) -> None:
    """The newer coordinator that still lives would take the claim for its successor's, and end."""
    TermJournal(tmp_path, A, 1).close()
    before = (tmp_path / CLAIM_FILE).read_text()
    (tmp_path / "journal.jsonl").write_text(NEWER)
    (tmp_path / "journal-000000000001.jsonl").write_text(NEWER)
    with pytest.raises(Unreadable):
        TermJournal(tmp_path, "i-0000000000000000b", 2)
    assert (tmp_path / CLAIM_FILE).read_text() == before


def test_the_coordinator_and_the_audit_say_so_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "dyntrain" / "demo"
    (job / "job-1" / "ledger").mkdir(parents=True)
    (job / "current-job").write_text('{"job": "job-1", "started_at": 1.0}')
    (job / "job-1" / "ledger" / "journal.jsonl").write_text(NEWER)
    argv = ["--cluster", "demo", "--instance-id", A, "--host", "127.0.0.1", "--mount", str(tmp_path)]
    with caplog.at_level(logging.ERROR):
        assert main(argv) == 78, "to start it again does not help"
    assert [record.getMessage().count("version 2 of the journal") for record in caplog.records] == [1]
    assert audit.main([str(job / "job-1" / "ledger")]) == 2
    assert "version 2 of the journal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        (CLAIM_FILE, '{"version": 2, "holder": "i-0b"}', lambda folder: TermJournal(folder, A, 9)),
        ("current-job", '{"version": 2, "name": "job-1"}', lambda folder: read_current_job(folder / "current-job")),
        ("i-0a-7.intents.jsonl", '{"version": 2, "g": "1-4"}\n', lambda folder: list(read_intents(folder))),
    ],
)
def test_whatever_else_a_newer_release_left_on_the_volume_is_refused_too(
    tmp_path: Path, name: str, text: str, read: Callable[[Path], object]
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Unreadable, match=rf"{name}: written by a newer dyntrain, in version 2"):
        read(tmp_path)
    assert (tmp_path / name).read_text() == text


def test_a_claim_of_a_newer_release_overtakes(tmp_path: Path) -> None:
    """A coordinator that held the job must end, not fail and be started again beside its successor."""
    journal = TermJournal(tmp_path, A, 1)
    (tmp_path / CLAIM_FILE).write_text('{"version": 2, "holder": "i-0b"}')
    with pytest.raises(Overtaken, match="newer dyntrain"):
        journal.check_claim()


def test_what_earlier_releases_wrote_without_a_version_is_read(tmp_path: Path) -> None:
    (tmp_path / CLAIM_FILE).write_text(f'{{"term": 3, "instance": "{A}"}}')
    assert TermJournal(tmp_path, A, 3).taken_over is None
    (tmp_path / "i-0a-7.intents.jsonl").write_text('{"g":1,"e":0,"o":0,"s":4,"i":[2,5]}\n')
    assert [(intent.step, intent.indices) for intent in read_intents(tmp_path)] == [(4, (2, 5))]


def test_a_line_of_somebody_else_is_refused_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "pause", "at": 1.0, "generation": 2, "phases": {}}\n')
    with pytest.raises(Unreadable, match=r"events\.jsonl: .*seconds: Field required"):
        list(read_events(tmp_path / "events.jsonl"))


def test_the_schema_of_events_is_cheap_to_import() -> None:
    """Plots, pages and the command line read events where there is no MXNet."""
    heavy = "{'mxnet', 'numpy', 'websockets', 'boto3', 'asyncio'}"
    code = f"import sys, dyntrain.training.events; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=patient(60))
    assert done.stdout.strip() == "[]"
