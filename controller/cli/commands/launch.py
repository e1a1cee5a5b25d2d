"""`dyntrain launch`: a job by hand, whose own program reads the arguments."""

from __future__ import annotations

import sys

import click
from dyntrain.missing import TRAINING, require


@click.command("launch", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(arguments: tuple[str, ...]) -> None:
    """Train without a cloud, on hosts that you name (--help lists the flags)."""
    require(TRAINING)
    from dyntrain.training.launch.command import main as launch_job

    sys.exit(launch_job(arguments))
