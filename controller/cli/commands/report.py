"""`dyntrain report`: describe a running or ended job as text, as an HTML page or as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.completion import CLUSTER
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.named_job import file_errors_as_give_up, is_file_name, latest_report
from dyntrain.controller.cli.shell.options import output_options
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.words import printable_lines
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.local.paths import local_path
from dyntrain.missing import require

if TYPE_CHECKING:
    from dyntrain.training.report.story import Story


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain report demo --html demo.html\n"
    "  dyntrain report /myEFSvolume/dyntrain/demo/job-20260101-120000-ab12 --html job.html\n"
    "  dyntrain report events.jsonl --png job.png"
)
@click.argument("job", required=False, type=CLUSTER)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=local_path,
    help="Write one page that needs no network.",
)
@click.option(
    "--png",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=local_path,
    help="Draw its curves. Needs the extra `picture`.",
)
@output_options("all that is known of it as one object", "the figures", "with each change")
def report(job: str | None, html: Path | None, png: Path | None, output: str) -> None:  # `dyntrain report`
    """Print a job's workers, samples/s, metrics, membership changes with causes and pauses, samples and instance-hours.

    JOB is a file events.jsonl, the folder of such a file, or the name of a cluster or job. The file events.jsonl
    contains all events of a job, whereas a job's reports to the controller contain a history of limited length. Without
    JOB, the command describes the only job that has reported.
    """
    with errors_on_one_line():
        if png is not None:
            require(("resvg_py",))
        with waiting("reading the job"):
            story, audit_result = _story_of(job)
        from dyntrain.training.report.source import as_data, summary, write_page, write_picture

        to_stderr = output == "json"  # stdout has the JSON object alone
        if to_stderr:
            click.echo(json.dumps(as_data(story, audit_result)))
        else:
            click.echo(printable_lines(summary(story, audit_result, with_changes=output == "wide")))
        if html is not None:
            with _write_errors_as_give_up(html):
                write_page(html, story, audit_result)
            click.echo(f"page: {html}", err=to_stderr)
        if png is not None:
            with _write_errors_as_give_up(png):
                write_picture(png, story)
            click.echo(f"picture: {png}", err=to_stderr)


@contextmanager
def _write_errors_as_give_up(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GiveUp(f"{file} cannot be written: {error.strerror or error}") from error
    except RuntimeError as error:  # a picture without a font for its text
        raise GiveUp(str(error)) from error


def _story_of(job: str | None) -> tuple[Story, str]:
    if job is not None and is_file_name(job):
        from dyntrain.training.report.source import audit_text, story_of_file

        file = Path(job)
        with file_errors_as_give_up(file):
            return story_of_file(file), audit_text(file if file.is_dir() else file.parent)
    from dyntrain.training.report.story import story_of_report

    try:
        return story_of_report(latest_report(job)), "not audited: the ledger is on the shared volume"
    except ValueError as error:
        raise GiveUp(str(error)) from error
