"""`dyntrain launch`: start a job on named hosts. The package `training.launch` parses the arguments."""

from __future__ import annotations

import sys

import click
from dyntrain.missing import TRAINING_PACKAGES, require


@click.command("launch", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(arguments: tuple[str, ...]) -> None:  # `dyntrain launch`
    """Train on hosts that you name, without a cloud (--help lists the options)."""
    require(TRAINING_PACKAGES)
    from dyntrain.training.launch.command import main as launch_job

    sys.exit(launch_job(arguments))
