"""`dyntrain index`: write index files for RecordIO files."""

from __future__ import annotations

from pathlib import Path

import click
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import GiveUp


@click.command(epilog="Examples:\n\n\b\n  dyntrain index train.rec\n  dyntrain index shards/*.rec --force")
@click.argument(
    "files", metavar="FILE.rec...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--force", is_flag=True, help="Replace indexes that are there.")
def index(files: tuple[Path, ...], force: bool) -> None:  # `dyntrain index`
    """Write FILE.idx next to each FILE.rec. A line of FILE.idx contains a record's number and offset in bytes. Channels
    and MXNet's random-access readers need an index file for each RecordIO file.
    """
    with errors_on_one_line():
        from dyntrain.training.worker.channel.framing import index_of

        for file in files:
            index_file = file.with_suffix(".idx")
            if file.suffix != ".rec":
                raise GiveUp(f"{file} cannot be indexed: its name does not end in .rec")
            if index_file.exists() and not force:
                raise GiveUp(f"{index_file} exists already; give --force to replace it")
            try:
                index_lines = index_of(file)
            except (OSError, ValueError) as error:
                raise GiveUp(f"{file} is no RecordIO file: {error}") from error
            try:
                temporary_file = index_file.with_name(f"{index_file.name}.new")
                temporary_file.write_text("".join(index_lines), encoding="utf-8")
                temporary_file.replace(index_file)
            except OSError as error:
                raise GiveUp(f"{index_file} cannot be written: {error.strerror or error}") from error
            click.echo(printable(f"{index_file}: {len(index_lines)} records"))
