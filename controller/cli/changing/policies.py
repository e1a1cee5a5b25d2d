"""Parse and check cluster policies that users write."""

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
        policy_fields = json.loads(text)
    except ValueError as error:
        raise Misconfigured(f"{source} is not JSON: {error}") from error
    if not isinstance(policy_fields, dict):
        raise Misconfigured(f"{source} contains a JSON {type(policy_fields).__name__}; a policy must be a JSON object")
    return policy_fields


def checked_policy(policy_fields: Mapping[str, Any]) -> ClusterPolicy:
    """Check the fields of a cluster policy and return the policy. Raises Misconfigured with the names of all wrong
    fields.
    """
    try:
        return ClusterPolicy.model_validate_json(json.dumps(policy_fields))
    except ValidationError as error:
        problems = [wrong_fields(error, "policy")]
        if any(
            field_error["type"] == "extra_forbidden" and len(field_error["loc"]) == 1 for field_error in error.errors()
        ):
            problems.append(f"the fields are {', '.join(sorted(ClusterPolicy.model_fields))}")
        raise Misconfigured(f"the policy is not valid: {'; '.join(problems)}") from error


def training_problem(types: Iterable[str]) -> str:
    """The reason why the published MXNet packages cannot train on one of the instance types `types`, or "" if training
    is possible on every type.
    """
    return next(filter(None, map(cannot_train, sorted(types))), "")
