"""Every policy of ours against IAM's own tables: an action that does not exist, a resource that an action does not take
or a condition that it does not know allows nothing, and shows only when AWS refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import ROOT, judge

VALUES = {
    "AWS::Partition": "aws",
    "AWS::Region": "eu-central-1",
    "AWS::AccountId": "111122223333",
    "AWS::StackName": "demo",
    "AWS::URLSuffix": "amazonaws.com",
    "ElasticSuffix": "-worker",
    "FactsTable.Arn": "arn:aws:dynamodb:eu-central-1:111122223333:table/demo-FactsTable-1A",
    "FactsTable.StreamArn": "arn:aws:dynamodb:eu-central-1:111122223333:table/demo-FactsTable-1A/stream/2026",
    "DeadLetters.Arn": "arn:aws:sqs:eu-central-1:111122223333:demo-DeadLetters",
    "Stage": "prod",
    "Object": "bucket/dyntrain.whl",
    "Place": "bucket/runs",
    "DataBucket": "bucket",
    "DataPrefix": "sets",
    "Bucket.Arn": "arn:aws:s3:::jobs",
}
GLOBAL = {"aws:SourceAccount", "aws:SourceArn", "aws:ResourceAccount"}  # AWS fills them in for every request


class Template(yaml.SafeLoader):
    """CloudFormation's short forms as the long ones."""


Template.add_multi_constructor(
    "!",
    lambda loader, tag, node: {
        ("Ref" if tag == "Ref" else f"Fn::{tag}"): loader.construct_scalar(node)
        if isinstance(node, yaml.ScalarNode)
        else loader.construct_sequence(node, deep=True)
        if isinstance(node, yaml.SequenceNode)
        else loader.construct_mapping(node, deep=True)
    },
)


def filled(part: Any) -> Any:
    """With a value in the place of each name of the stack."""
    if isinstance(part, list):
        return [value for one in part if (value := filled(one)) is not None]
    if not isinstance(part, dict):
        return part
    if "Fn::Sub" in part:
        text = part["Fn::Sub"] if isinstance(part["Fn::Sub"], str) else part["Fn::Sub"][0]
        text = re.sub(r"\$\{([^}]*)\}", lambda match: VALUES[match[1]], text)
        return re.sub(r"\{\{resolve:[^}]*/tables\}\}", "prod-FactsTable-*", text)
    if "Fn::GetAtt" in part:
        place = part["Fn::GetAtt"]
        return VALUES[place if isinstance(place, str) else ".".join(place)]
    if "Fn::If" in part:
        return filled(part["Fn::If"][1])
    if part == {"Ref": "AWS::NoValue"}:
        return None
    return {key: filled(value) for key, value in part.items()}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((ROOT / ".chalice").glob("policy-*.json")):
        for entry in json.loads(path.read_text())["Statement"]:
            yield f"{path.name} {entry['Sid']}", filled(entry)
    templates = [ROOT / "node_bootstrap" / name for name in ("cluster.template.yaml", "job.template.yaml")]
    for path in (*templates, ROOT / ".chalice" / "resources.yaml"):
        resources = yaml.load(path.read_text(), Template)["Resources"]  # noqa: S506 - a SafeLoader
        for name, resource in resources.items():
            properties = resource.get("Properties", {})
            documents = [policy["PolicyDocument"] for policy in properties.get("Policies", ())]
            documents += [properties["PolicyDocument"]] if "PolicyDocument" in properties else []
            for document in documents:
                for entry in map(filled, document["Statement"]):
                    yield f"{path.name} {name} {entry.get('Sid', '')}", entry


def takes(kind: dict[str, Any], resource: str) -> bool:
    """The first five fields have no colon in them, and the last may have some."""
    fields = zip(re.sub(r"\$\{[^}]*\}", "*", kind["arn"]).split(":", 5), resource.split(":", 5), strict=True)
    return all(overlap(one, other) for one, other in fields)


@cache
def overlap(one: str, other: str) -> bool:
    """Whether a text could match both, in which a star stands for anything, also over colons and slashes."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return overlap(one[1:], other) or overlap(one, other[1:])
    if other[0] == "*":
        return overlap(other, one)
    return one[0] == other[0] and overlap(one[1:], other[1:])


def problems(entry: dict[str, Any], tables: dict[str, Any]) -> Iterator[str]:
    for action in listed(entry["Action"]):
        table = tables[action]
        if table is None:
            yield f"there is no action {action}"
            continue
        kinds = {name: kind for name, kind in table.items() if name}
        for resource in listed(entry["Resource"]):
            if resource == "*":
                if any(kind["required"] for kind in kinds.values()):
                    yield f"{action} could name its resources"
            elif not any(takes(kind, resource) for kind in kinds.values()):
                yield f"{action} takes no {resource}, but {sorted(kind['arn'] for kind in kinds.values())}"
        known = {key.partition("/")[0] for kind in table.values() for key in kind["keys"]} | GLOBAL
        for key in {name.partition("/")[0] for test in entry.get("Condition", {}).values() for name in test}:
            if key not in known:
                yield f"{action} knows no condition {key}"


ENTRIES = dict(statements())


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    actions: dict[str, Any] = judge("judge_iam.py", sorted({a for e in ENTRIES.values() for a in listed(e["Action"])}))
    return actions


def test_all_policies_of_ours_are_judged() -> None:
    """A policy in a place that is not looked at would have no witness."""
    files = [*(ROOT / ".chalice").glob("*.*"), *Path(ROOT / "node_bootstrap").rglob("*.*")]
    texts = {path.name: path.read_text() for path in files if path.suffix in (".json", ".yaml")}
    written = {name: len(re.findall(r"\bEffect\b", text)) for name, text in texts.items()}
    judged = {name: sum(place.split()[0] == name for place in ENTRIES) for name in written}
    trust = {"cluster.template.yaml": 2, "job.template.yaml": 1}  # who may take the machines' roles
    assert judged == {name: count - trust.get(name, 0) for name, count in written.items()}


@pytest.mark.parametrize("place", ENTRIES)
def test_a_statement_says_what_iam_understands(place: str, tables: dict[str, Any]) -> None:
    assert list(problems(ENTRIES[place], tables)) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"Action": "ssm:GetParameterz"}, "there is no action"),
        ({"Resource": "arn:aws:ec2:*:*:instance/*"}, "takes no"),
        ({"Resource": "*"}, "could name its resources"),
        ({"Condition": {"StringEquals": {"ec2:LaunchTemplate": "x"}}}, "knows no condition"),
    ],
)
def test_the_judge_finds_what_is_wrong(wrong: dict[str, Any], problem: str) -> None:
    entry = {"Action": "ssm:GetParameter", "Resource": "arn:aws:ssm:*:*:parameter/dyntrain/x", **wrong}
    (line,) = problems(entry, judge("judge_iam.py", [entry["Action"]]))
    assert problem in line
