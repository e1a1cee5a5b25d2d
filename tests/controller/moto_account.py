"""An account on moto for the command line: what its tests share, besides the fixtures of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG_SUFFIX
from dyntrain.controller.contract.stage import stage_parameter

TABLE = "facts-of-commands"
RESOURCES = Path(__file__).parents[2] / ".chalice" / "resources.yaml"
KEYS = ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
Run = Callable[..., Result]


def deploy(clients: Clients, stage: str, table: str, suffix: str = ELASTIC_TAG_SUFFIX) -> None:
    """What a controller's stack says of itself."""
    for name, value in ((stage_parameter(stage, "table"), table), (stage_parameter(stage, "suffix"), suffix)):
        clients.ssm().put_parameter(Name=name, Value=value, Type="String")
