"""What is deployed: the table as the adapters use it, one policy a function, and rules that the handlers understand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from chalice.app import CloudWatchEventConfig
from chalice.config import Config
from dyntrain.controller.contract.reports import JOB_DETAIL_TYPES, NODE_DETAIL_TYPES
from dyntrain.controller.core.incoming.events import _PARSERS

import app

CHALICE = Path(__file__).parents[2] / ".chalice"
CONFIG = json.loads((CHALICE / "config.json").read_text())
RESOURCES = yaml.safe_load((CHALICE / "resources.yaml").read_text())["Resources"]
HANDLERS = {source.name for source in app.app.event_sources}
MUTATING = ("Terminate", "Complete", "Record", "Set")


def statements(function: str) -> list[dict]:
    file = CONFIG["lambda_functions"][function]["iam_policy_file"]
    return json.loads((CHALICE / file).read_text())["Statement"]


@pytest.mark.parametrize("stage", sorted(CONFIG["stages"]))
def test_every_handler_has_a_policy_of_its_own_choice_in_every_stage(stage: str) -> None:
    """As Chalice reads it: what a stage does not say of a function, the file says for all stages."""
    assert set(CONFIG["lambda_functions"]) == HANDLERS
    for function in HANDLERS:
        read = Config(chalice_stage=stage, function_name=function, config_from_disk=CONFIG)
        assert read.autogen_policy is False
        assert (CHALICE / read.iam_policy_file).exists()
        assert read.lambda_timeout == CONFIG["lambda_functions"][function].get("lambda_timeout", 30)


@pytest.mark.parametrize("function", sorted(HANDLERS))
def test_no_policy_allows_every_action_and_what_ends_instances_is_bound_to_the_ownership_tag(function: str) -> None:
    for statement in statements(function):
        names = [action.split(":")[1] for action in statement["Action"]]
        assert "*" not in names
        if any(name.startswith(MUTATING) for name in names):
            bound = json.dumps(statement["Condition"])
            assert any(f"aws:ResourceTag/dyntrain:{what}" in bound for what in ("cluster", "job"))


def test_intake_functions_may_touch_nothing_but_the_table() -> None:
    actions = {action for statement in statements("on_tag_change") for action in statement["Action"]}
    assert {action for action in actions if not action.startswith(("logs:", "xray:", "sqs:"))} == {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
    }


def test_the_stream_delivers_new_images_filtered_and_never_blocks_on_a_poison_record() -> None:
    assert RESOURCES["FactsTable"]["Properties"]["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    mapping = RESOURCES["Converge"]["Properties"]["Events"]["ConvergeDynamodbEventSource"]["Properties"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] > 0
    assert "DeadLetters" in json.dumps(mapping["DestinationConfig"])
    assert json.loads(mapping["FilterCriteria"]["Filters"][0]["Pattern"]) == {
        "dynamodb": {"NewImage": {"wake": {"BOOL": [True]}}}
    }


def test_every_detail_type_that_a_rule_names_is_understood_by_the_intake() -> None:
    patterns = [source.event_pattern for source in app.app.event_sources if isinstance(source, CloudWatchEventConfig)]
    named = {
        (source, kind)
        for pattern in patterns
        for source in pattern["source"]
        for kind in pattern.get("detail-type", [])
    }
    assert named <= set(_PARSERS)
    assert {kind for source, kind in _PARSERS if source == "dyntrain.node"} == set(NODE_DETAIL_TYPES.values())
    assert {kind for source, kind in _PARSERS if source == "dyntrain.coordinator"} == set(JOB_DETAIL_TYPES.values())
