"""Why a job ended: the verdict names the cause, never the failure of the ranks that were ended because of it.

What would break for a user: "rank 1 failed: connection reset" in place of "the job has taken more than its 2 hours", or
of the rank that EC2 took back, whose job would have been tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, SUCCEEDED, Exit
from dyntrain.node_bootstrap.job import program
from dyntrain.node_bootstrap.job.command import UserAccount
from dyntrain.node_bootstrap.job.metadata import MetadataMissing
from dyntrain.node_bootstrap.job.plan import JobPlan
from dyntrain.node_bootstrap.job.program import PATIENCE, Node

PLAN = JobPlan("mnist", "0123456789ab-1", 2, 7777, ["train"], {}, "artifacts", "", False, 3600.0)


class Job:
    """Two ranks that train together: the command of one fails as soon as the other's is ended, and that rank tells so
    at once. In place of the bucket, the metadata service, the output and the command of each rank.
    """

    path = Path("output.log")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settled: list[Exit] = []  # each word that a verdict was wanted, in order: the first one counts
        self.codes_of: dict[int, int | None] = {}
        self.code_of_command: int | None = None
        self.ended_with: list[float] = []
        self.others: Callable[[], None] = self._other_fails
        self.looks = 0
        self.silent = self.taken = self.away = False
        self.lines: list[str] = []

    def run(self, rank: int = 0, **plan: Any) -> Exit:
        here: Any = self
        folder = self.folder / str(rank)
        folder.mkdir()
        node = Node(here, PLAN._replace(**plan), rank, here, here, folder, beat=3600.0, retry=0.0)
        end = node.run(UserAccount(None))
        node.finish(end)
        return end

    def _other_fails(self) -> None:
        other = Job(self.folder)
        other.settled, other.code_of_command = self.settled, 1
        other.run(rank=1)

    # ---- the command

    def exit_code(self) -> int | None:
        self.looks += 1
        assert self.looks < 20_000, "the node ends it"
        return self.code_of_command

    def terminate(self, patience: float) -> None:
        self.ended_with.append(patience)
        self.away = False
        if self.code_of_command is None:
            self.code_of_command = -15
            self.others()

    # ---- the bucket

    def write_verdict(self, ended: Exit) -> None:
        if self.away:
            raise OSError("S3 is away")
        self.settled.append(ended)

    def verdict(self) -> Exit | None:
        return self.settled[0] if self.settled else None

    def exit_codes(self, nodes: int) -> dict[int, int | None]:
        return self.codes_of

    def signs_of_life(self) -> tuple[dict[int, float], set[int]]:
        return ({0: 1000.0, 1: 0.0} if self.silent else {}), set()

    def download(self, key: str, path: Path) -> None: ...

    def upload(self, path: Path, key: str) -> None: ...

    def write(self, key: str, text: str) -> None: ...

    def save_artifacts(self, folder: Path) -> int:
        return 0

    # ---- the output and the metadata service

    def say(self, text: str) -> None:
        self.lines.append(text)

    def tail(self) -> list[str]:
        return self.lines

    def close(self) -> None: ...

    def get(self, path: str) -> str | None:
        if not self.taken:
            raise MetadataMissing("there is no answer")
        return "{}"

    def wait_for(self, path: str, seconds: float) -> str:
        return "10.0.0.4"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(program, "unpack", lambda archive, folder: None)
    monkeypatch.setattr(program, "Command", lambda argv, folder, env, account, output: output)
    monkeypatch.setattr(program, "LOOK_SECONDS", 0.001)
    return Job(tmp_path)


def test_a_job_over_its_hours_ends_for_that_and_not_for_the_ranks_that_fail_when_it_is_ended(job: Job) -> None:
    end = job.run(seconds=0.0)
    assert "more than its 0 hours" in job.settled[0].reason
    assert (end.reason, end.code, job.ended_with) == (job.settled[0].reason, None, [PATIENCE])


def test_a_job_whose_rank_fell_silent_ends_for_that_and_names_that_rank(job: Job) -> None:
    job.silent = True
    end = job.run()
    assert (job.settled[0].rank, job.settled[0].reason) == (1, "rank 1 has been silent for 1000 seconds")
    assert (end.rank, end.reason) == (0, job.settled[0].reason), "its own exit.json is its own"


def test_an_interruption_is_the_jobs_end_and_not_the_failure_of_the_others(job: Job) -> None:
    job.taken = True
    assert job.run().verdict == INTERRUPTED
    assert (job.settled[0].verdict, job.settled[0].rank) == (INTERRUPTED, 0)


@pytest.mark.parametrize("cause", ["hours", "interruption"])
def test_a_cause_that_could_not_be_told_at_once_ends_the_command_all_the_same(job: Job, cause: str) -> None:
    """S3 may be away for longer than EC2 waits."""
    job.away, job.taken, job.others = True, cause == "interruption", lambda: None
    end = job.run(**({} if job.taken else {"seconds": 0.0}))
    assert job.ended_with == [PATIENCE]
    assert end.verdict == (INTERRUPTED if job.taken else FAILED)
    assert "S3 is away" in "".join(job.lines)
    assert job.settled[0].reason == end.reason


def test_a_rank_ends_with_the_verdict_of_another_and_says_why_as_that_one_did(job: Job) -> None:
    first = Exit(FAILED, 1, 3, "the command of rank 1 ended with exit code 3", 5.0, "Traceback")
    job.settled, job.others = [first], lambda: None
    end = job.run()
    assert job.settled[0] == first
    assert (end.verdict, end.rank, end.code, end.reason, end.tail) == (FAILED, 0, None, first.reason, "")
    assert job.ended_with == [PATIENCE]


def test_a_command_that_fails_by_itself_is_the_cause_with_what_it_wrote(job: Job) -> None:
    job.code_of_command = 3
    job.lines.append("the loss is NaN")
    end = job.run()
    assert (job.settled, end.verdict, end.code) == ([end], FAILED, 3)
    assert "the loss is NaN" in end.tail
    assert job.ended_with == [0.0], "what it left running goes, too"


@pytest.mark.parametrize(
    ("codes", "verdicts"), [({0: 0}, []), ({0: 0, 1: 1}, []), ({0: 0, 1: None}, []), ({0: 0, 1: 0}, [SUCCEEDED])]
)
def test_a_job_has_succeeded_when_all_ranks_have_and_not_before(
    job: Job, codes: dict[int, int | None], verdicts: list[str]
) -> None:
    job.code_of_command, job.codes_of = 0, codes
    assert job.run().verdict == SUCCEEDED
    assert [word.verdict for word in job.settled] == verdicts
