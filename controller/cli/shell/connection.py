"""Connect a command to a deployed stage of the controller."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # not imported at run time, so that `--help` is fast
    from dyntrain.controller.cli.answers.connection import Connection
    from dyntrain.controller.contract.stage import Stage


def connect_to_stage(stage: Stage | None = None) -> Connection:
    """Connect to `stage`, by default to the stage of the current command."""
    from dyntrain.controller.adapters.on_aws import aws_ports
    from dyntrain.controller.cli.answers.connection import Connection
    from dyntrain.controller.loops.registry import Registry

    stage = stage or stage_of_command()
    ports = aws_ports(stage.table, attempts=2, stage=stage.name)
    return Connection(ports, Registry(ports.parameters, ports.clock, stage.name), stage.elastic)


def stage_of_command() -> Stage:
    """The stage named by --stage or DYNTRAIN_STAGE, else the only deployed stage. If DYNTRAIN_TABLE is set, no stage is
    looked up in AWS.
    """
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.ssm import SsmParameters
    from dyntrain.controller.contract.settings import Settings
    from dyntrain.controller.contract.stage import Stage, chosen_stage

    settings = Settings.of(os.environ)
    click_context = click.get_current_context(silent=True)
    stage_name = click_context.find_root().params.get("stage") if click_context is not None else None
    if settings.table is not None:
        return Stage(stage_name or settings.stage, settings.table, settings.elastic)
    return chosen_stage(SsmParameters(Clients(attempts=2)).stages(), stage_name or settings.stage)
