"""Finds the cluster's unfinished job on the shared volume, or begins a new job."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from pathlib import Path

from dyntrain.training.coordinator.terms import read_journal
from dyntrain.training.coordinator.whole_file import write_whole
from dyntrain.training.journal import Entry, JobClosed, JobResumed
from dyntrain.training.layout import CurrentJob, JobFolder, current_job_file, read_current_job


def open_job(mount: Path, cluster: str, now: float) -> tuple[str, float]:
    """Return name and start time of the cluster's unfinished job, or of a new job if no job is unfinished.

    The name of a closed job is never used for another job. A job that has ended, but whose coordinator died before its
    last report, is opened again to send this report.
    """
    job_file = current_job_file(mount, cluster)
    if job_file.exists():
        current_job = read_current_job(job_file)
        if not is_job_closed(read_journal(JobFolder.of(mount, cluster, current_job.job).ledger)):
            return current_job.job, current_job.started_at
    new_job = begin_job(mount, cluster, now)
    return new_job.job, new_job.started_at


def begin_job(mount: Path, cluster: str, now: float, command: Sequence[str] | None = None) -> CurrentJob:
    """Begin a new job, which is the cluster's current job from now on.

    `command` is the training command that must be equal if the job is resumed later, or None if any command may resume
    the job.
    """
    job_name = dt.datetime.fromtimestamp(now, dt.UTC).strftime("job-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    new_job = CurrentJob(job=job_name, started_at=now, command=None if command is None else tuple(command))
    job_file = current_job_file(mount, cluster)
    job_file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(job_file, new_job.line())
    return new_job


def is_job_closed(journal: Sequence[Entry]) -> bool:
    """Whether the job's end was reported to the controller, and the job was not resumed afterwards."""
    last_entry = next((entry for entry in reversed(journal) if isinstance(entry, JobClosed | JobResumed)), None)
    return isinstance(last_entry, JobClosed)


def commits_below(directory: Path | None, cluster: str, job: str) -> str | None:
    """The folder of this job's commits below `--checkpoint-dir`, which several jobs may share."""
    return None if directory is None else str(directory.resolve() / cluster / job)
