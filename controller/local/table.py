"""The facts table, made from the very definition that is deployed: `.chalice/resources.yaml`, resource `FactsTable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from controller.local.errors import ResourcesInvalid

RESOURCE = "FactsTable"
TTL = "TimeToLiveSpecification"
CREATE = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "LocalSecondaryIndexes", "BillingMode", "ProvisionedThroughput")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with CloudFormation's short tags (!Ref, !GetAtt, !Sub), which are kept as their plain text."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: f"!{suffix}")


def load_resources(path: Path) -> dict[str, Any]:
    """The template's Resources. Raises ResourcesInvalid."""
    try:
        template = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader with opaque tags
    except (OSError, yaml.YAMLError) as error:
        raise ResourcesInvalid(f"cannot read {path}: {error}; the embedded cloud makes its table from it") from error
    resources = template.get("Resources") if isinstance(template, dict) else None
    if not isinstance(resources, dict):
        raise ResourcesInvalid(f"{path} has no Resources")
    return resources


def table_request(resources: dict[str, Any], name: str) -> dict[str, Any]:
    """The parameters of CreateTable, under the name the handlers use. Raises ResourcesInvalid."""
    try:
        properties = resources[RESOURCE]["Properties"]
        request = {"TableName": name} | {key: properties[key] for key in CREATE if key in properties}
        view = properties["StreamSpecification"]["StreamViewType"]
    except (KeyError, TypeError) as error:
        raise ResourcesInvalid(f"resource {RESOURCE} in resources.yaml lacks {error}: it needs Properties with keys and a stream") from error
    return request | {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": view}}


def ttl_attribute(resources: dict[str, Any]) -> str | None:
    """The attribute that holds each item's end of life, if the table has one."""
    specification = resources[RESOURCE]["Properties"].get(TTL) or {}
    attribute = specification.get("AttributeName")
    return str(attribute) if attribute and specification.get("Enabled", True) else None


def stream_filters(resources: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Patterns of the FilterCriteria of DynamoDB event sources, in SAM's form. Empty: every record passes."""
    found: list[dict[str, Any]] = []
    for resource in resources.values():
        properties = resource.get("Properties") if isinstance(resource, dict) else None
        sources = properties.get("Events") if isinstance(properties, dict) else None
        for source in sources.values() if isinstance(sources, dict) else ():
            criteria = source.get("Properties", {}).get("FilterCriteria") if source.get("Type", "DynamoDB") == "DynamoDB" else None
            for entry in (criteria or {}).get("Filters", []):
                pattern = entry["Pattern"]
                found.append(json.loads(pattern) if isinstance(pattern, str) else pattern)
    return tuple(found)
