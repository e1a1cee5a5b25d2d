"""Check command-line options that name a folder or file of this machine."""

from __future__ import annotations

from pathlib import Path

import click
from dyntrain.controller.contract.folders import not_local_problem


def local_path(_context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Check that an option's path is local, and return the path. Raises click.BadParameter for an address such as
    s3://bucket.
    """
    if path is not None and (problem := not_local_problem(path)):
        raise click.BadParameter(f"{path} {problem}", param=parameter)
    return path
