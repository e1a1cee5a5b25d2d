"""Find the job that a person names by a file or by the job's or its cluster's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dyntrain.controller.cli.shell.connection import connect
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.contract.reports import JobReport


def is_file_name(job: str) -> bool:
    """Whether `job` names a file, and not a cluster or a job."""
    file = Path(job)
    return file.exists() or file.suffix == ".jsonl" or len(file.parts) > 1


@contextmanager
def file_errors_as_give_up(file: Path) -> Iterator[None]:
    """A context for reading a job's file. Errors become GiveUp with the file's name."""
    from dyntrain.training.records import Unreadable

    try:
        yield
    except OSError as error:
        raise GiveUp(f"{error.filename or file} cannot be read: {error.strerror or error}") from error
    except (Unreadable, ValueError) as error:
        raise GiveUp(f"{file} cannot be shown: {error}") from error


def latest_report(name: str | None) -> JobReport:
    """The latest report of the job or cluster `name`, by default of the only job. Raises GiveUp for none or several."""
    ports, registry, _ = connect()
    clusters = sorted(registry.all())
    reports = [facts.report for cluster in clusters if (facts := ports.jobs.get(cluster)[0]) is not None]
    matching = [report for report in reports if name in (None, report.cluster, report.job)]
    names = ", ".join(f"{report.cluster} ({report.job})" for report in reports) or "none"
    if not matching:
        raise GiveUp(
            f"no job {name!r} has reported (clusters and jobs: {names})" if name else "no job has reported yet"
        )
    if len(matching) > 1:
        raise GiveUp(f"several jobs have reported ({names}): name one of them")
    return matching[0]
