"""`dyntrain index`: the index that a channel, and MXNet's readers at random, want beside RecordIO files."""

from __future__ import annotations

from pathlib import Path

import click
from dyntrain.controller.cli.shell.errors import one_clear_line
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import GiveUp


@click.command(epilog="Examples:\n\n\b\n  dyntrain index train.rec\n  dyntrain index shards/*.rec --force")
@click.argument(
    "files",
    metavar="FILE.rec...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--force", is_flag=True, help="Replace indexes that are there.")
def index(files: tuple[Path, ...], force: bool) -> None:
    """Write FILE.idx beside each FILE.rec: a line for each record, with its number and where it begins."""
    with one_clear_line():
        from dyntrain.training.worker.channel.framing import index_of

        for file in files:
            beside = file.with_suffix(".idx")
            if file.suffix != ".rec":
                raise GiveUp(f"{file} is no FILE.rec")
            if beside.exists() and not force:
                raise GiveUp(f"{beside} is there already; give --force to replace it")
            try:
                lines = index_of(file)
            except (OSError, ValueError) as error:
                raise GiveUp(f"{file} is no RecordIO file: {error}") from error
            try:
                whole = beside.with_name(f"{beside.name}.new")
                whole.write_text("".join(lines), encoding="utf-8")
                whole.replace(beside)
            except OSError as error:
                raise GiveUp(f"{beside} cannot be written: {error.strerror or error}") from error
            click.echo(printable(f"{beside}: {len(lines)} records"))
