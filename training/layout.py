"""Paths of a job's files on the shared volume."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dyntrain.training.records import Format, Record
from pydantic import Field, TypeAdapter


@dataclass(frozen=True)
class JobFolder:
    """The job's folder, `<mount>/dyntrain/<cluster>/<job>/`: ledger, commits, events and logs."""

    root: Path  # the job's folder

    @classmethod
    def of(cls, mount: Path, cluster: str, job: str) -> JobFolder:
        return cls(mount / "dyntrain" / cluster / job)

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def commits(self) -> Path:
        return self.root / "commits"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def output(self) -> Path:
        """The folder for the training script's own files (`job.output`)."""
        return self.root / "output"

    def log_of(self, instance: str) -> Path:
        """The file with the output of the instance's worker, which exists if the configuration says `logs: volume`."""
        return self.root / "logs" / f"{instance}.log"


def current_job_file(mount: Path, cluster: str) -> Path:
    """The file that names the cluster's unfinished job, so that a restarted coordinator continues this job."""
    return mount / "dyntrain" / cluster / "current-job"


class CurrentJob(Record):
    """The content of the file that names the cluster's unfinished job."""

    version: int = 1  # version of the file's format
    job: str  # name of the job
    started_at: float  # seconds since 1970
    command: tuple[str, ...] | None = Field(None, exclude_if=lambda value: value is None)  # if launched by hand


_FORMAT: Format[CurrentJob] = Format("name of a cluster's job", 1, TypeAdapter(CurrentJob))


def read_current_job(file: Path) -> CurrentJob:
    """Read the name of the cluster's job from its file. Raises OSError, `records.Unreadable`."""
    return _FORMAT.parse(json.loads(file.read_text()), file)
