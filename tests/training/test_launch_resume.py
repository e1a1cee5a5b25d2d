"""A second launch in a folder: what would break for a user is a job of before that goes on though nobody asked for it,
or one that does not though somebody did.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.local.pace import patient
from dyntrain.training.coordinator.current_job import begin_job, is_job_closed, open_job
from dyntrain.training.coordinator.terms import TermJournal
from dyntrain.training.journal import (
    CommitWritten,
    Entry,
    GenerationSettled,
    JobClosed,
    JobFailed,
    JobFinished,
    JobResumed,
)
from dyntrain.training.launch.command import CLUSTER, Launcher, launch_lock, main, one_line
from dyntrain.training.launch.earlier_job import EarlierJob, ResumeDecision, decide, read_earlier_job
from dyntrain.training.launch.host_file import FileHosts
from dyntrain.training.launch.plan import LaunchError, parse
from dyntrain.training.layout import CurrentJob, JobFolder
from dyntrain.training.protocol.messages import START, Position
from launched_job import Launched

TRAIN = ("python", "train.py", "--lr", "0.1")
AT = Position(epoch=12, offset=0, step=345)
JOB = CurrentJob(job="job-1", started_at=1.0, command=TRAIN)


@pytest.mark.parametrize(
    ("earlier", "sentence"),
    [
        (None, ""),
        (EarlierJob(JOB, "finished", AT), ""),
        (EarlierJob(JOB, "", START), ""),
        (EarlierJob(JOB, "", AT), "job-1 was interrupted after epoch 12, step 345: to continue that job, .* --resume"),
        (EarlierJob(JOB, "failed", AT), "job-1 has failed after epoch 12, step 345: to continue that job, .* --resume"),
    ],
)
def test_without_resume_a_new_job_begins_and_one_that_could_go_on_is_named(
    earlier: EarlierJob | None, sentence: str
) -> None:
    decision = decide(earlier, ("python", "other.py"), resume=False)
    assert decision.job is None
    assert re.fullmatch(f"a new job begins. {sentence}" if sentence else "", decision.sentence)


@pytest.mark.parametrize("outcome", ["", "failed"])
@pytest.mark.parametrize(("position", "place"), [(AT, "epoch 12, step 345"), (START, "its start")])
def test_with_resume_the_job_goes_on_and_the_first_line_says_from_where(
    outcome: str, position: Position, place: str
) -> None:
    decision = decide(EarlierJob(JOB, outcome, position), TRAIN, resume=True)
    assert decision == ResumeDecision(JOB, f"job-1 continues from {place}; without --resume a new job begins")


@pytest.mark.parametrize(
    ("earlier", "words", "message"),
    [
        (None, TRAIN, "no job was launched in this folder before"),
        (EarlierJob(JOB, "finished", AT), TRAIN, "job-1 has finished"),
        (EarlierJob(JOB, "", AT), (*TRAIN, "x y"), "begun with another command: python train.py --lr 0.1\n"),
        (EarlierJob(JOB, "", AT), TRAIN[:-1], "begun with another command"),
    ],
)
def test_what_cannot_be_resumed_is_refused_by_name(
    earlier: EarlierJob | None, words: Sequence[str], message: str
) -> None:
    with pytest.raises(LaunchError, match=f"--resume: .*{re.escape(message)}"):
        decide(earlier, words, resume=True)


def test_a_job_whose_command_was_not_recorded_goes_on_with_any() -> None:
    job = JOB.model_copy(update={"command": None})
    assert decide(EarlierJob(job, "", AT), TRAIN, resume=True).job == job


def left(folder: Path, *entries: Entry) -> CurrentJob:
    """A job in this folder, by what its journal says."""
    job = begin_job(folder, CLUSTER, 1.0, TRAIN)
    journal = TermJournal(JobFolder.of(folder, CLUSTER, job.job).ledger, "i-1", None)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return job


SETTLED = GenerationSettled(number=1, members=("a",), position=START, at=1.0, pids={"a": 1}, holders=("a",), hosts={})
COMMIT = CommitWritten(generation=1, position=AT, name="000001-000000000345.commit")
FAILED = JobFailed(reason="no", at=1.0)


@pytest.mark.parametrize(
    ("entries", "outcome", "position"),
    [
        ((), "", START),
        ((SETTLED, COMMIT), "", AT),
        ((SETTLED, COMMIT, FAILED, JobClosed(at=2.0)), "failed", AT),
        ((SETTLED, COMMIT, FAILED, JobClosed(at=2.0), JobResumed(at=3.0)), "", AT),
        ((SETTLED, COMMIT, JobFinished(position=AT, at=1.0), JobClosed(at=2.0)), "finished", AT),
    ],
)
def test_what_came_of_a_job_is_read_from_its_journal(
    tmp_path: Path, entries: Sequence[Entry], outcome: str, position: Position
) -> None:
    job = left(tmp_path, *entries)
    assert read_earlier_job(tmp_path, CLUSTER) == EarlierJob(job, outcome, position)


def test_a_folder_without_a_job_has_none_and_one_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    assert read_earlier_job(tmp_path, CLUSTER) is None
    left(tmp_path)
    (tmp_path / "dyntrain" / CLUSTER / "current-job").write_text("{")
    with pytest.raises(LaunchError, match="the job of an earlier launch in this folder cannot be read"):
        read_earlier_job(tmp_path, CLUSTER)


def test_a_cluster_goes_on_with_a_job_that_was_resumed_and_not_with_one_that_is_closed(tmp_path: Path) -> None:
    job = left(tmp_path, SETTLED, FAILED, JobClosed(at=2.0))
    assert open_job(tmp_path, CLUSTER, 5.0)[0] != job.job
    again = left(tmp_path, SETTLED, FAILED, JobClosed(at=2.0), JobResumed(at=3.0))
    assert open_job(tmp_path, CLUSTER, 5.0)[0] == again.job
    assert is_job_closed([FAILED, JobResumed(at=3.0), FAILED, JobClosed(at=4.0)])


def test_two_launches_do_not_run_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with launch_lock(tmp_path):
        assert main(["-n", "1", "--launcher", "local", "true"]) == 2
        assert "another launch runs in" in capsys.readouterr().err
        with launch_lock(tmp_path / "elsewhere"):
            pass
    with launch_lock(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dyntrain").touch()  # a file, in which nobody can make a folder, root neither
    monkeypatch.chdir(tmp_path)
    assert main(["-n", "1", "--launcher", "local", "true"]) == 2
    assert capsys.readouterr().err.startswith("launch: the job's files cannot be written: ")


def test_what_goes_wrong_within_a_launch_is_not_taken_for_its_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), launch_lock(tmp_path):
        raise BlockingIOError


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("the target has fewer workers", "the target has fewer workers"),
        (
            "exit code 1; its last output:\nTraceback\n  File\nNameError: x\n",
            "exit code 1; its last output: NameError: x",
        ),
        ("", "for a reason that is not known"),
    ],
)
def test_a_reason_with_a_traceback_is_one_line(reason: str, line: str) -> None:
    assert one_line(reason) == line


class Refused:
    """A node's process that ends at once, as ssh does that is refused."""

    def __init__(self, stays: bool) -> None:
        self.returncode = None if stays else 255


async def given_up(
    monkeypatch: pytest.MonkeyPatch, folder: Path, reachable: Sequence[str] = (), began: bool = False
) -> Launcher:
    """Looks at two hosts ten times."""
    plan = parse(["-n", "2", "--launcher", "local", "true"])
    files = FileHosts(folder, plan.hosts)
    files.endpoint = CoordinatorEndpoint.model_construct()  # what the nodes are told is not looked at
    files.last_report = JobReport.model_construct(state="running", generation=int(began))
    launcher = Launcher(plan, folder, files)

    async def start(host: str, *_: bool) -> Refused:
        return Refused(host in reachable)

    monkeypatch.setattr(launcher, "_launch_node", start)
    for _ in range(10):
        await launcher.start_missing_nodes()
    return launcher


def test_a_base_host_that_cannot_be_reached_ends_the_launch_before_it_begins_with_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"node at ip: 127\.0\.0\.2 ended 5 times, and is not launched again; .* remove it from the host file"
    with pytest.raises(LaunchError, match=message):
        asyncio.run(given_up(monkeypatch, tmp_path, reachable=("127.0.0.1",)))


def test_a_host_that_goes_while_others_train_does_not_end_the_job_and_the_last_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(given_up(monkeypatch, tmp_path, reachable=("127.0.0.1",), began=True))
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("node at ip: 127.0.0.2 ended 5 times")
    with pytest.raises(LaunchError, match="no host is left to train on"):
        asyncio.run(given_up(monkeypatch, tmp_path, began=True))


@pytest.mark.jobs
@pytest.mark.pslite
def test_launched_again_a_folder_begins_a_new_job_and_goes_on_with_resume_alone(
    launched: Callable[..., Launched],
) -> None:
    flags = ("-n", "1", "--launcher", "local")
    job = launched(*flags)
    job.wait_for(r"epoch 2 .* workers 1")
    job.process.send_signal(signal.SIGINT)
    assert job.process.wait(patient(60)) == 130
    other = launched(*flags, script=("--batch-size", "8"))
    other.wait_for(r"a new job begins\. job-\S+ was interrupted after epoch \d+, step \d+")
    other.wait_for(r"epoch 1 .* workers 1")
    other.process.send_signal(signal.SIGINT)
    assert other.process.wait(patient(60)) == 130
    changed = launched(*flags, "--resume")
    assert changed.process.wait(patient(60)) == 2
    assert "--batch-size 8" in changed.log, "the command that it was begun with"
    again = launched(*flags, "--resume", script=("--batch-size", "8"))
    again.wait_for(r"job-\S+ continues from epoch \d+, step \d+")
    assert again.go() == 0
