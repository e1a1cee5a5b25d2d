"""Several controllers in one account: which one a command, a cluster and a target belong to."""

from __future__ import annotations

import re

import pytest
from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import CLUSTER_NAME, parameter
from dyntrain.controller.contract.stage import STAGES, Stage, chosen_stage, stage_names, stage_parameter

DEV = {stage_parameter("dev", "table"): "dyntrain-dev-FactsTable-1X", stage_parameter("dev", "suffix"): "-dev-worker"}
PROD = {stage_parameter("prod", "table"): "dyntrain-prod-FactsTable-9Z", stage_parameter("prod", "suffix"): "-worker"}


def test_the_only_stage_is_taken_and_of_several_the_one_that_is_named() -> None:
    assert chosen_stage(DEV, None) == Stage("dev", "dyntrain-dev-FactsTable-1X", ElasticTag("-dev-worker"))
    assert chosen_stage(DEV | PROD, "prod") == Stage("prod", "dyntrain-prod-FactsTable-9Z", ElasticTag("-worker"))


def test_a_stage_says_whose_signatures_it_believes_and_one_of_an_earlier_release_does_not() -> None:
    parameters = {**DEV, stage_parameter("dev", "identity"): "unverified"}
    assert (chosen_stage(parameters, None).identity, chosen_stage(DEV, None).identity) == ("unverified", "")


@pytest.mark.parametrize(
    ("parameters", "wanted", "message"),
    [
        ({}, None, "no controller is deployed in this account and region"),
        (DEV | PROD, None, "several controllers are deployed here (dev, prod): choose one by --stage or DYNTRAIN"),
        (DEV | PROD, "test", "there is no stage 'test' in this account and region; there are: dev, prod"),
        ({stage_parameter("dev", "suffix"): "-x"}, None, f"stage 'dev' has no parameter {STAGES}dev/table"),
    ],
)
def test_what_is_not_clear_is_said_with_what_to_do(
    parameters: dict[str, str], wanted: str | None, message: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        chosen_stage(parameters, wanted)
    assert str(caught.value).startswith(message)


def test_no_cluster_can_be_named_so_that_its_parameters_are_a_stages() -> None:
    folder = STAGES.removeprefix(parameter("", "policy").removesuffix("/policy")).strip("/")
    assert not re.match(CLUSTER_NAME, folder)
    assert stage_names([*DEV, *PROD, parameter("demo", "policy")]) == ["dev", "prod"]
