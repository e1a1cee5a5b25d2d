"""Where a job keeps its files on the shared volume."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

COMMITS_KEPT = 3  # the newest; the coordinator knows their names, so that it can go back to an earlier one


@dataclass(frozen=True)
class JobFolder:
    """`<mount>/dyntrain/<cluster>/<job>/`: ledger, commits, and the events for people and programs."""

    root: Path

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


def current_job_file(mount: Path, cluster: str) -> Path:
    """Names the cluster's unfinished job, so that a coordinator that comes back goes on with it."""
    return mount / "dyntrain" / cluster / "current-job"
