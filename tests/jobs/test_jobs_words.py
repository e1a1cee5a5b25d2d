"""What a person reads of a job: no "0.0 MB", no "exit code None", and what to do where something is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dyntrain.controller.adapters import submission
from dyntrain.controller.cli.commands.job.command import _request_from_options
from dyntrain.controller.cli.commands.job.jobs import JobState
from dyntrain.controller.cli.commands.job.looking import _job_lines
from dyntrain.controller.cli.text.words import size_text
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine

RECORD = JobRecord(
    name="mnist", submission="s", digest="d", bucket="b", nodes=3, instance_type="c6i.large", max_hours=1.0, since=0.0,
    changed=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (48_000, "48.0 kB"), (3_210_000, "3.2 MB"), (5e9, "5.0 GB")],
)
def test_a_size_has_a_unit_in_which_it_is_a_number(count: int, text: str) -> None:
    assert size_text(int(count)) == text


def test_a_rank_that_has_ended_has_its_exit_code_where_that_was_read() -> None:
    machines = [Machine(f"i-{rank}", rank, "terminated", "token") for rank in range(3)]
    lines = _job_lines(JobState(RECORD, "RUNNING", machines, None, {0: 3, 1: None}, 3))
    ends = {line.split()[1]: line.partition("terminated")[2] for line in lines if line.startswith("  rank")}
    assert ends == {"0": ", exit code 3", "1": ", has ended", "2": ""}


def test_without_a_stack_for_jobs_the_commands_that_make_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "stack_defaults", lambda _: {})
    options: dict[str, Any] = {"bucket": "", "profile": "", "security_group": "", "code": ".", "requirements": None}
    launcher = cast("Any", SimpleNamespace(clients=None))
    with pytest.raises(
        GiveUp, match=r"dyntrain job template > job\.yaml` and `aws cloudformation deploy .*dyntrain-jobs"
    ):
        _request_from_options(launcher, options, (), elastic=False)


def test_a_command_in_quotes_is_taken_apart_before_a_machine_is_launched_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submission, "stack_defaults", lambda _: {"bucket": "jobs"})
    launcher = cast("Any", SimpleNamespace(clients=None))

    def command(*typed: str) -> tuple[str, ...]:
        options: dict[str, Any] = {
            "name": "x", "code": str(tmp_path), "nodes": 1, "instance_type": "m5.large", "image": "", "bucket": "",
            "profile": "", "security_group": "", "requirements": None, "disk": None, "command": typed,
        }  # fmt: skip
        return _request_from_options(launcher, options, (), elastic=False).command

    assert command("python3 train.py --lr 0.1") == ("python3", "train.py", "--lr", "0.1")
    (tmp_path / "my job.sh").touch()
    assert command("my job.sh") == ("my job.sh",)
    with pytest.raises(GiveUp, match="put bash -c in front"):
        command("cd x && python3 train.py")
