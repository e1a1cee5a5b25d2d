"""Parse and check cluster policies that people write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.gpu_families import cannot_train
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.wrong_fields import wrong_fields
from pydantic import ValidationError


def parsed_policy(text: str, source: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise Misconfigured(f"{source} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Misconfigured(f"{source} contains a JSON {type(fields).__name__}; a policy must be a JSON object")
    return fields


def checked_policy(fields: Mapping[str, Any]) -> ClusterPolicy:
    """The policy with these fields. Raises Misconfigured, which names every wrong field."""
    try:
        return ClusterPolicy.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        problems = [wrong_fields(error, "policy")]
        if any(entry["type"] == "extra_forbidden" and len(entry["loc"]) == 1 for entry in error.errors()):
            problems.append(f"the fields are {', '.join(sorted(ClusterPolicy.model_fields))}")
        raise Misconfigured(f"the policy is not valid: {'; '.join(problems)}") from error


def cannot_train_on(types: Iterable[str]) -> str:
    """Why MXNet's builds cannot train on one of these instance types; "" if no such reason is known."""
    return next(filter(None, map(cannot_train, sorted(types))), "")
