"""What a person who watches is told of a job: by `make demo`, and below what `dyntrain local up` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.answers.log_sources import files_of
from dyntrain.controller.cli.main import main
from dyntrain.controller.local import command
from dyntrain.controller.local.demo.narration import Narrator
from dyntrain.controller.local.demo.observer import Observer
from dyntrain.controller.local.stack import digits_command
from dyntrain.controller.local.up import WORKER_LOG, UpOptions, worker_log_of
from dyntrain.training import events
from dyntrain.training.layout import CurrentJob, JobFolder, current_job_file
from dyntrain.training.protocol.messages import Position

ONE = "i-00000000000000001"
AT = Position(epoch=3, offset=0, step=75)
TRACEBACK = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'label'"


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_line(self, line: str) -> None:
        assert "\n" not in line
        self.lines.append(line)

    def show_epoch(self, epoch: events.Segment) -> None:
        self.lines.append(f"epoch {epoch.epoch}")

    def close(self) -> None: ...


def printed(*heard: events.Event, log: Path | None = None, afterwards: str = "") -> list[str]:
    terminal = Terminal()
    telling = Narrator(terminal, lambda instance: log if instance == ONE else None, afterwards)
    for event in heard:
        telling.show_event(event)
    return terminal.lines


def lost(pid: int, output: str = TRACEBACK) -> events.WorkerLost:
    return events.WorkerLost(instance=ONE, pid=pid, reason=f"exit code 1; its last output:\n{output}", at=1.0)


def test_a_script_that_fails_is_told_with_its_last_lines_and_the_same_again_in_one() -> None:
    """The terminal said nothing at all of a job that failed."""
    lines = printed(lost(1), lost(2), lost(3, "ValueError: another"))
    assert lines == [
        f"{ONE} worker lost: exit code 1; its last output:",
        *(f"    {line}" for line in TRACEBACK.splitlines()),
        f"{ONE} worker lost: exit code 1; its last output: KeyError: 'label'",
        f"{ONE} worker lost: exit code 1; its last output:",
        "    ValueError: another",
    ]


def test_the_last_line_of_a_failed_job_is_its_reason_and_its_log() -> None:
    reason = f"no worker could start, on any node; the last time on {ONE}: exit code 1; its last output:\n{TRACEBACK}"
    lines = printed(
        lost(1), events.Failed(reason=reason, at=2.0), log=Path("/cloud/worker.log"), afterwards="begin again"
    )
    assert lines[-1] == (
        f"the job failed: no worker could start, on any node; the last time on {ONE}: exit code 1; its last output: "
        "KeyError: 'label'; its log: /cloud/worker.log"
    )
    assert lines[-2] == "begin again"
    assert printed(events.Failed(reason="below the minimum", at=2.0)) == ["the job failed: below the minimum"]


def test_the_end_of_a_job_that_has_finished_is_told_with_the_log_of_one_that_trained() -> None:
    segment = events.Segment.model_construct(epoch=2, at=1.0, generation=1, pids={ONE: 7})
    lines = printed(segment, events.Finished(position=AT, at=2.0), log=Path("/cloud/worker.log"))
    assert lines == ["epoch 2", "the job has finished after 3 epochs, at step 75; its log: /cloud/worker.log"]


def test_what_a_script_writes_does_not_move_the_terminal() -> None:
    assert printed(lost(1, "1 %\r50 %\r\x1b[2J99 %\r\nboth\nlast"))[1:] == ["     [2J99 %", "    both", "    last"]


def test_of_quick_epochs_some_are_told_and_those_that_matter() -> None:
    """Two lines a second took what was to be pasted out of sight, and the joins with them."""
    terminal = Terminal()
    telling = Narrator(terminal, epoch_seconds=5.0)
    trained = [
        events.Segment.model_construct(epoch=n, at=100.0 + n, generation=1 if n < 8 else 2, pids={ONE: 7})
        for n in range(11)
    ]
    for event in [*trained, events.Finished(position=AT, at=111.0), *trained[:2]]:
        telling.show_event(event)
    assert [line for line in terminal.lines if line.startswith("epoch")] == [
        *("epoch 0", "epoch 5", "epoch 8", "epoch 10"),
        "epoch 0",
    ], "the first of each generation, and the last; another job's first, too"


class Nobody:
    """EC2, without instances."""

    def get_paginator(self, name: str) -> Nobody:
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        return [{"Reservations": [], "Tags": []}]


def test_a_job_that_is_begun_again_is_told_from_its_beginning_and_the_one_before_to_its_end(tmp_path: Path) -> None:
    """Of the second job as many bytes were passed over as the first had written."""
    file, heard = current_job_file(tmp_path, "demo"), list[events.Event]()
    announcements = list[str]()
    observer = Observer(Nobody(), "demo", tmp_path, announcements.append)
    observer.on_event = heard.append

    def write(job: str, *pids: int) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(CurrentJob(job=job, started_at=1.0).model_dump()))
        log = JobFolder.of(tmp_path, "demo", job).events
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as lines:
            lines.writelines(f"{lost(pid).model_dump_json()}\n" for pid in pids)

    write("job-1", 1, 2)
    observer._observe()
    write("job-1", 3)
    write("job-2", 4)
    observer._observe()
    write("job-2", 5)
    observer._observe()
    assert [event.pid for event in heard if isinstance(event, events.WorkerLost)] == [1, 2, 3, 4, 5]
    assert announcements == ["another job begins: job-2"]


def test_the_playgrounds_own_job_goes_on_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was over after 80 seconds, and did not take the worker that its reader had been told to add."""
    calls = list[UpOptions]()
    monkeypatch.setattr(command, "serve", calls.append)
    assert CliRunner().invoke(main, ["local", "up", "--port", "0"]).exit_code == 0
    assert digits_command(calls[0].epochs or 0)[-4:-2] == ("--epochs", "0")


def test_the_log_of_a_machine_is_found_wherever_its_root_is(tmp_path: Path) -> None:
    assert worker_log_of(tmp_path, ONE) is None
    for place in ("disk/upper", "."):
        log = tmp_path / "machines" / ONE / place / WORKER_LOG
        log.parent.mkdir(parents=True)
        log.touch()
        assert worker_log_of(tmp_path, ONE) == log
        assert log in files_of(tmp_path / "machines" / ONE, "worker"), "nor does `dyntrain logs` miss it"
    further = tmp_path / "machines" / ONE / WORKER_LOG.replace("worker", "worker-1")
    further.touch()
    assert worker_log_of(tmp_path, f"{ONE}:1") == further, "of a node with several workers"
    assert worker_log_of(tmp_path, "") is None
