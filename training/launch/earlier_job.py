"""Reads the last job that was launched in a folder, and decides whether the present launch continues the job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dyntrain.training.coordinator.terms import read_journal
from dyntrain.training.launch.plan import LaunchError
from dyntrain.training.layout import CurrentJob, JobFolder, current_job_file, read_current_job
from dyntrain.training.protocol.messages import START, Position
from dyntrain.training.records import Unreadable
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.recovery.from_journal import restore_job


@dataclass(frozen=True)
class EarlierJob:
    """The last job that was launched in a folder. `outcome` is "finished", "failed", or "" for an interrupted job.

    `position` is the position of the job's last commit.
    """

    current: CurrentJob  # name, start and command of the job
    outcome: str = ""  # finished, failed, or "" for an interrupted job
    position: Position = START  # of the last commit

    @property
    def position_text(self) -> str:
        """The position of the job's last commit, as text for a message."""
        return f"epoch {self.position.epoch}, step {self.position.step}" if self.position.step else "its start"


@dataclass(frozen=True)
class ResumeDecision:
    """The decision whether to continue an earlier job. `job` is the job to continue, or None if a new job begins.

    `sentence` explains the decision to the user in the log.
    """

    job: CurrentJob | None = None  # to continue, or None for a new job
    sentence: str = ""  # explains the decision, in the log


def read_earlier_job(directory: Path, cluster: str) -> EarlierJob | None:
    """Return the last job launched in `directory`, or None. Raises LaunchError if the job's files cannot be read."""
    try:
        current_job = read_current_job(current_job_file(directory, cluster))
        entries = read_journal(JobFolder.of(directory, cluster, current_job.job).ledger)
    except FileNotFoundError:
        return None
    except (OSError, Unreadable, ValueError) as error:
        raise LaunchError(f"the job of an earlier launch in this folder cannot be read: {error}") from error
    options = Options(cluster, current_job.job, current_job.started_at, Limits(1, 1), 1)
    job = restore_job(options, lambda: "", entries, current_job.started_at)
    return EarlierJob(current_job, job.outcome, job.commit[0] if job.commit else START)


def decide(earlier: EarlierJob | None, command: Sequence[str], resume: bool) -> ResumeDecision:
    """Decide whether this launch continues the earlier job.

    Raises LaunchError if `resume` is true but the job cannot be continued. Pure.
    """
    if not resume:
        if earlier is None or earlier.outcome == "finished" or not earlier.position.step:
            return ResumeDecision()
        outcome_text = "has failed" if earlier.outcome else "was interrupted"
        return ResumeDecision(
            sentence=f"a new job begins. {earlier.current.job} {outcome_text} after {earlier.position_text}: to "
            "continue that job, interrupt this one and launch again with --resume"
        )
    if earlier is None:
        raise LaunchError("--resume: no job was launched in this folder before; omit the option")
    job_name, earlier_command = earlier.current.job, earlier.current.command
    if earlier.outcome == "finished":
        raise LaunchError(f"--resume: {job_name} has finished; omit the option to begin a new job")
    if earlier_command is not None and earlier_command != tuple(command):
        raise LaunchError(
            f"--resume: {job_name} was begun with another command: {shlex.join(earlier_command)}\n"
            "give that command, or omit --resume to begin a new job"
        )
    return ResumeDecision(
        earlier.current, f"{job_name} continues from {earlier.position_text}; without --resume a new job begins"
    )
