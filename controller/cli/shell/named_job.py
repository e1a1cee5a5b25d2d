"""Find the job that a person names, by its files or by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dyntrain.controller.cli.shell.connection import connect
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.contract.reports import JobReport


def names_file(job: str) -> bool:
    """Whether the word is a file rather than a cluster or a job."""
    file = Path(job)
    return file.exists() or file.suffix == ".jsonl" or len(file.parts) > 1


@contextmanager
def unreadable(file: Path) -> Iterator[None]:
    """A context for reading a job's files, which raises GiveUp with the file's name."""
    from dyntrain.training.records import Unreadable

    try:
        yield
    except OSError as error:
        raise GiveUp(f"{error.filename or file} cannot be read: {error.strerror or error}") from error
    except (Unreadable, ValueError) as error:
        raise GiveUp(f"{file} cannot be shown: {error}") from error


def reported(name: str | None) -> JobReport:
    """The latest report of a job, by its name, its cluster's, or None where only one is known. Raises GiveUp."""
    ports, registry, _ = connect()
    clusters = sorted(registry.all())
    reports = [facts.report for cluster in clusters if (facts := ports.jobs.get(cluster)[0]) is not None]
    matching = [report for report in reports if name in (None, report.cluster, report.job)]
    names = ", ".join(f"{report.cluster} ({report.job})" for report in reports) or "none"
    if not matching:
        raise GiveUp(
            f"no job {name!r} has been heard of (clusters and jobs: {names})" if name else "no job was heard of"
        )
    if len(matching) > 1:
        raise GiveUp(f"several jobs are known: say which one ({names})")
    return matching[0]
