"""Find the job that the user names by an events file, by the job's name or by the cluster's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dyntrain.controller.cli.shell.connection import connect_to_stage
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.contract.reports import JobReport


def is_file_name(job: str) -> bool:
    """Whether the text `job` is the path of a file, and not the name of a cluster or a job."""
    file = Path(job)
    return file.exists() or file.suffix == ".jsonl" or len(file.parts) > 1


@contextmanager
def file_errors_as_give_up(file: Path) -> Iterator[None]:
    """A context for reading a job's file, in which errors are raised as GiveUp with the file's name."""
    from dyntrain.training.records import Unreadable

    try:
        yield
    except OSError as error:
        raise GiveUp(f"{error.filename or file} cannot be read: {error.strerror or error}") from error
    except (Unreadable, ValueError) as error:
        raise GiveUp(f"{file} cannot be shown: {error}") from error


def latest_report(name: str | None) -> JobReport:
    """The latest report of the job or cluster `name`, or of the only job. Raises GiveUp if no job or several jobs
    match.
    """
    ports, registry, _ = connect_to_stage()
    cluster_names = sorted(registry.all())
    job_reports = [facts.report for cluster in cluster_names if (facts := ports.jobs.get(cluster)[0]) is not None]
    matching_reports = [report for report in job_reports if name in (None, report.cluster, report.job)]
    known_names = ", ".join(f"{report.cluster} ({report.job})" for report in job_reports) or "none"
    if not matching_reports:
        raise GiveUp(
            f"no job {name!r} has reported (clusters and jobs: {known_names})" if name else "no job has reported yet"
        )
    if len(matching_reports) > 1:
        raise GiveUp(f"several jobs have reported ({known_names}): name one of them")
    return matching_reports[0]
