"""What is deployed: the table as the adapters use it, one policy a function, and rules that the handlers understand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from chalice.app import CloudWatchEventConfig

import app
from controller.contract import JOB_DETAIL_TYPES, NODE_DETAIL_TYPES
from controller.events import _TABLE

CHALICE = Path(__file__).parents[2] / ".chalice"
CONFIG = json.loads((CHALICE / "config.json").read_text())
RESOURCES = yaml.safe_load((CHALICE / "resources.yaml").read_text())["Resources"]
HANDLERS = {source.name for source in app.app.event_sources}
MUTATING = ("Terminate", "Complete", "Record", "Set")


def statements(function: str) -> list[dict]:
    file = CONFIG["stages"]["prod"]["lambda_functions"][function]["iam_policy_file"]
    return json.loads((CHALICE / file).read_text())["Statement"]


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_every_handler_has_a_policy_of_its_own_choice_in_every_stage(stage: str) -> None:
    functions = CONFIG["stages"][stage]["lambda_functions"]
    assert set(functions) == HANDLERS
    assert CONFIG["autogen_policy"] is False
    assert all((CHALICE / function["iam_policy_file"]).exists() for function in functions.values())


@pytest.mark.parametrize("function", sorted(HANDLERS))
def test_no_policy_allows_every_action_and_what_ends_instances_is_bound_to_the_ownership_tag(function: str) -> None:
    for statement in statements(function):
        names = [action.split(":")[1] for action in statement["Action"]]
        assert "*" not in names
        if any(name.startswith(MUTATING) for name in names):
            assert "aws:ResourceTag/dyntrain:cluster" in json.dumps(statement["Condition"])


def test_intake_functions_may_touch_nothing_but_the_table() -> None:
    actions = {action for statement in statements("on_tag_change") for action in statement["Action"]}
    assert {action for action in actions if not action.startswith(("logs:", "xray:", "sqs:"))} == {"dynamodb:GetItem", "dynamodb:PutItem"}


def test_the_stream_delivers_new_images_filtered_and_never_blocks_on_a_poison_record() -> None:
    assert RESOURCES["FactsTable"]["Properties"]["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    mapping = RESOURCES["Converge"]["Properties"]["Events"]["ConvergeDynamodbEventSource"]["Properties"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] > 0
    assert "DeadLetters" in json.dumps(mapping["DestinationConfig"])
    assert json.loads(mapping["FilterCriteria"]["Filters"][0]["Pattern"]) == {"dynamodb": {"NewImage": {"wake": {"BOOL": [True]}}}}


def test_every_detail_type_that_a_rule_names_is_understood_by_the_intake() -> None:
    patterns = [source.event_pattern for source in app.app.event_sources if isinstance(source, CloudWatchEventConfig)]
    named = {(source, kind) for pattern in patterns for source in pattern["source"] for kind in pattern.get("detail-type", [])}
    assert named <= set(_TABLE)
    assert {kind for source, kind in _TABLE if source == "dyntrain.node"} == set(NODE_DETAIL_TYPES.values())
    assert {kind for source, kind in _TABLE if source == "dyntrain.coordinator"} == set(JOB_DETAIL_TYPES.values())
