"""A judge that reads policies as IAM does, and a record of the calls that it judges, by role."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from deploy_packages import ROOT
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.local.cloud.embedded import Cloud

ROLES = ("intake", "converge", "resync", "rebalance", "notify")
STAGE = "prod"


def statements(role: str) -> list[dict[str, Any]]:
    """With the partition and the suffix of this deployment; what else the stack has to fill in stays as it is."""
    policy = json.loads((ROOT / ".chalice" / f"policy-{role}.json").read_text())
    entries: list[dict[str, Any]] = _filled(policy["Statement"])
    return entries


def _filled(part: Any) -> Any:
    if isinstance(part, list):
        return [_filled(one) for one in part]
    if not isinstance(part, dict):
        return part
    if set(part) == {"Fn::Sub"}:
        text = part["Fn::Sub"].replace("${AWS::Partition}", "aws").replace("${ElasticSuffix}", ELASTIC_TAG.suffix)
        text = text.replace("${Stage}", STAGE)
        return part if "${" in text else text
    return {key: _filled(value) for key, value in part.items()}


@dataclass(frozen=True)
class Call:
    """`resource`: one of those that the call is about; `tags`: what it carried when the call was made."""

    role: str
    action: str
    resource: str
    tag_keys: tuple[str, ...]
    tags: Mapping[str, str]

    @property
    def passes(self) -> bool:
        return self.passes_with(self.tags)

    def passes_with(self, tags: Mapping[str, str]) -> bool:
        return any(
            self.action in entry["Action"] and self._covered(entry) and self._met(entry, tags)
            for entry in statements(self.role)
        )

    def _covered(self, entry: Mapping[str, Any]) -> bool:
        named = entry["Resource"] if isinstance(entry["Resource"], list) else [entry["Resource"]]
        return any(
            fnmatchcase(self.resource, one) if isinstance(one, str) else self.resource == json.dumps(one)
            for one in named
        )

    def _met(self, entry: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
        return all(
            _holds(operator, key, wanted, self.tag_keys, tags)
            for operator, tests in entry.get("Condition", {}).items()
            for key, wanted in tests.items()
        )


def _holds(operator: str, key: str, wanted: Any, tag_keys: tuple[str, ...], tags: Mapping[str, str]) -> bool:
    """One line of a condition: the operators that the policies use."""
    present = (
        list(tag_keys)
        if key == "aws:TagKeys"
        else [tags[name] for name in (key.removeprefix("aws:ResourceTag/"),) if name in tags]
    )
    patterns = wanted if isinstance(wanted, list) else [wanted]
    match operator:
        case "Null":
            return (not present) == (wanted == "true")
        case "StringEquals" if key == "aws:ResourceAccount":
            return bool(wanted == {"Ref": "AWS::AccountId"})  # whose every bucket of the story is
        case "StringLike":
            return any(fnmatchcase(value, pattern) for value in present for pattern in patterns)
        case "ForAllValues:StringLike":
            return all(any(fnmatchcase(value, pattern) for pattern in patterns) for value in present)
        case "ForAllValues:StringEquals":
            return set(present) <= set(patterns)
    raise AssertionError(f"say here what {operator} means")


@dataclass
class Recording:
    cloud: Cloud
    role: str = ""
    calls: list[Call] = field(default_factory=list)

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        self.role = role
        yield
        self.role = ""

    def note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        """botocore's `before-parameter-build`: the operation with its parameters, before anything is sent."""
        if not self.role:
            return
        service = {"auto scaling": "autoscaling"}.get(
            model.service_model.service_id.lower(), model.service_model.service_id.lower()
        )
        keys = tuple(tag["Key"] for tag in params.get("Tags", ()))
        for resource, tags in self._about(service, params):
            self.calls.append(Call(self.role, f"{service}:{model.name}", resource, keys, tags))

    def _about(self, service: str, params: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str]]]:
        if service == "dynamodb":
            yield (
                json.dumps(
                    {"Fn::Sub": f"${{FactsTable.Arn}}/index/{params['IndexName']}"}
                    if "IndexName" in params
                    else {"Fn::GetAtt": ["FactsTable", "Arn"]}
                ),
                {"dynamodb:LeadingKeys": item["pk"]["S"]}
                if (item := params.get("Key") or params.get("Item")) is not None
                else {},
            )
        elif service == "ssm":
            yield f"arn:aws:ssm:us-east-1:1:parameter{params.get('Name', params.get('Path', '')).rstrip('/')}", {}
        elif service == "s3":
            yield f"arn:aws:s3:::{params['Bucket']}/{params['Key']}", {}
        elif service == "ec2":
            for instance in params.get("Resources", params.get("InstanceIds", [""])):
                yield f"arn:aws:ec2:us-east-1:1:instance/{instance}", self.cloud.account.instance_tags(instance)
        else:
            group = params.get("AutoScalingGroupName") or self._group_of(params.get("InstanceId", ""))
            yield (
                f"arn:aws:autoscaling:us-east-1:1:autoScalingGroup:1:autoScalingGroupName/{group}",
                self._group_tags(group),
            )

    def _group_of(self, instance: str) -> str:
        return self.cloud.account.instance_tags(instance).get("aws:autoscaling:groupName", "")

    def _group_tags(self, name: str) -> dict[str, str]:
        group = self.cloud.account.autoscaling.autoscaling_groups.get(name)
        return (
            {tag["key" if "key" in tag else "Key"]: tag.get("value", tag.get("Value", "")) for tag in group.tags}
            if group is not None
            else {}
        )
