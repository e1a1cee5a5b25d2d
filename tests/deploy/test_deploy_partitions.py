"""China and GovCloud: AWS's other partitions, whose ARNs begin differently."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from deploy_packages import LINT, ROOT, run, template

HARD_CODED = re.compile(r"arn:aws:|amazonaws\.com\.cn")


def test_the_controllers_stack_names_no_partition(package: Path, tmp_path: Path) -> None:
    """Translated as the AWS::Serverless transform does it in a region of China."""
    out = tmp_path / "translated.json"
    china = {**os.environ, "AWS_DEFAULT_REGION": "cn-north-1"}
    done = run(LINT / "python", ROOT / ".chalice" / "translate.py", package / "sam.json", out, env=china)
    assert done.returncode == 0, done.stderr
    assert HARD_CODED.findall((package / "sam.json").read_text()) == []
    assert HARD_CODED.findall(out.read_text()) == []
    roles = [one for one in json.loads(out.read_text())["Resources"].values() if one["Type"] == "AWS::IAM::Role"]
    assert "arn:${AWS::Partition}:" in json.dumps(roles)


def test_the_stack_says_where_its_things_are_and_its_functions_know_their_stage(package: Path) -> None:
    """Nodes, coordinator and command line have no other way to the table, whose name CloudFormation makes up."""
    content = template(package)
    values = {name: content["Parameters"][name]["Default"] for name in ("Stage", "ElasticSuffix")}
    suffix = content["Resources"]["OnTagChange"]["Properties"]["Environment"]["Variables"]["DYNTRAIN_ELASTIC_SUFFIX"]
    assert values == {"Stage": "prod", "ElasticSuffix": suffix}
    parameters = {
        one["Properties"]["Name"]["Fn::Sub"]: one["Properties"]["Value"]
        for one in content["Resources"].values()
        if one["Type"] == "AWS::SSM::Parameter"
    }
    assert parameters == {
        "/dyntrain/-stage-/${Stage}/table": {"Ref": "FactsTable"},
        "/dyntrain/-stage-/${Stage}/tables": {"Fn::Sub": "${AWS::StackName}-FactsTable-*"},
        "/dyntrain/-stage-/${Stage}/suffix": {"Ref": "ElasticSuffix"},
        "/dyntrain/-stage-/${Stage}/identity": "region",  # whose keys the reports are verified by
    }
    variables = content["Globals"]["Function"]["Environment"]["Variables"]
    assert variables == {"DYNTRAIN_TABLE": {"Ref": "FactsTable"}, "DYNTRAIN_STAGE": {"Ref": "Stage"}}
    assert not re.search(r"-aws-dl-cfn-elastic-worker", json.dumps([*roles_of(content)])), (
        "the suffix is the stage's own"
    )


def roles_of(content: dict[str, object]) -> list[object]:
    resources = content["Resources"]
    assert isinstance(resources, dict)
    return [one for one in resources.values() if one["Type"] == "AWS::IAM::Role"]
