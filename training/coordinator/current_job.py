"""Which job a coordinator on this volume coordinates: the one that is not over, or a new one."""

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
    """The cluster's job that is not closed and when it started, or a new one. A closed job's name is never used again.

    One that has ended, and whose coordinator died before it could say so everywhere, is opened for just that.
    """
    file = current_job_file(mount, cluster)
    if file.exists():
        current = read_current_job(file)
        if not is_closed(read_journal(JobFolder.of(mount, cluster, current.job).ledger)):
            return current.job, current.started_at
    begun = begin_job(mount, cluster, now)
    return begun.job, begun.started_at


def begin_job(mount: Path, cluster: str, now: float, command: Sequence[str] | None = None) -> CurrentJob:
    """A new one is the cluster's job from here on. `command`: what trains, where a resumed job must have the same."""
    name = dt.datetime.fromtimestamp(now, dt.UTC).strftime("job-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    begun = CurrentJob(job=name, started_at=now, command=None if command is None else tuple(command))
    file = current_job_file(mount, cluster)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, begun.line())
    return begun


def is_closed(journal: Sequence[Entry]) -> bool:
    """Whether it is over, and everybody was told; not if somebody has resumed it since."""
    last = next((entry for entry in reversed(journal) if isinstance(entry, JobClosed | JobResumed)), None)
    return isinstance(last, JobClosed)


def commits_below(directory: Path | None, cluster: str, job: str) -> str | None:
    """The folder of this job's commits below a person's `--checkpoint-dir`: jobs may share it."""
    return None if directory is None else str(directory.resolve() / cluster / job)
