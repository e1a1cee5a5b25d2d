"""Wire messages round-trip through the files beside this one, so that a change of their form is seen in review."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import (
    ClusterPolicy,
    CoordinatorEndpoint,
    NodeConfig,
    Target,
    members_digest,
)
from dyntrain.controller.contract.reports import (
    JobReport,
    NodeReport,
)
from dyntrain.controller.contract.wire import Wire

FOLDER = Path(__file__).parent
MODELS: dict[str, type[Wire]] = {
    "cluster_policy": ClusterPolicy,
    "coordinator_endpoint": CoordinatorEndpoint,
    "job_report": JobReport,
    "node_config": NodeConfig,
    "node_report": NodeReport,
    "node_report_interrupted": NodeReport,
    "target": Target,
    "target_by_pointer": Target,
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_wire_message_reads_and_writes_exactly_its_file(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text()
    assert json.loads(MODELS[name].model_validate_json(text).model_dump_json()) == json.loads(text)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"cluster_policy", "node_config"}))
def test_messages_between_versions_tolerate_fields_they_do_not_know(name: str) -> None:
    fields = json.loads((FOLDER / f"{name}.json").read_text())
    assert MODELS[name].model_validate({**fields, "from_the_future": 1}) == MODELS[name].model_validate(fields)


@pytest.mark.parametrize("name", ["cluster_policy", "node_config"])
def test_a_misspelt_option_of_an_operator_is_refused_by_name(name: str) -> None:
    fields = json.loads((FOLDER / f"{name}.json").read_text())
    with pytest.raises(ValueError, match="max_wrokers"):
        MODELS[name].model_validate({**fields, "max_wrokers": 3})
    assert "max_wrokers" not in MODELS[name].model_fields


def test_the_digest_of_a_target_is_that_of_its_full_list() -> None:
    target = Target.model_validate_json((FOLDER / "target.json").read_text())
    assert target.digest == members_digest(target.members or ())
