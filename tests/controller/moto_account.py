"""An account on moto for the command line: what its tests share, besides the fixtures of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from click.testing import Result
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG_SUFFIX
from dyntrain.controller.contract.stage import stage_parameter
from waiting import wait_for

TABLE = "facts-of-commands"
RESOURCES = Path(__file__).parents[2] / ".chalice" / "resources.yaml"
KEYS = ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
Run = Callable[..., Result]


def deploy(clients: Clients, stage: str, table: str, suffix: str = ELASTIC_TAG_SUFFIX) -> None:
    """What a controller's stack says of itself."""
    for name, value in ((stage_parameter(stage, "table"), table), (stage_parameter(stage, "suffix"), suffix)):
        clients.ssm().put_parameter(Name=name, Value=value, Type="String")


def stored_table(clients: Clients, table: str) -> Iterator[str]:
    """The facts table, as the controller's stack makes it, with its stream."""
    properties = yaml.safe_load(RESOURCES.read_text())["Resources"]["FactsTable"]["Properties"]
    stream = {"StreamEnabled": True, **properties["StreamSpecification"]}
    dynamodb = clients.dynamodb()
    dynamodb.create_table(TableName=table, StreamSpecification=stream, **{key: properties[key] for key in KEYS})
    # Both take a moment, in which DynamoDB denies that there is a table, or refuses another of its name.
    wait_for(lambda: dynamodb.describe_table(TableName=table)["Table"]["TableStatus"] == "ACTIVE")
    yield table
    dynamodb.delete_table(TableName=table)
    wait_for(lambda: table not in dynamodb.list_tables()["TableNames"])
