"""Limits of AWS that moto does not enforce, and the refusal of price queries. Each check raises ApiError with AWS's
code and wording.
"""

from __future__ import annotations

import re
from typing import Any

from dyntrain.controller.contract.metadata_tags import TAG_KEY_PATTERN, refused_keys
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import Call
from dyntrain.controller.local.errors import ApiError

STANDARD_BYTES = 4096
ADVANCED_BYTES = 8192
# Users may not write tags with this prefix. Auto Scaling's error code is from this page, not from an observed answer:
# https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html
RESERVED_PREFIX = "aws:"
_TAG_KEY = re.compile(r"Tags?\.(member\.)?\d+\.Key")
# The error code OperationNotPermitted is from this page, not from an observed answer:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
PROTECTIONS = {
    "TerminateInstances": ("disable_api_termination", "terminated", "disableApiTermination"),
    "StopInstances": ("disable_api_stop", "stopped", "disableApiStop"),
}


def check(account: Account, call: Call) -> None:
    """Raise ApiError when AWS would refuse the call."""
    if call.service == "pricing":
        raise ApiError("AccessDeniedException", "the embedded cloud has no price list")
    if call.service in ("ec2", "autoscaling"):
        _no_reserved_tags(call)
    if call.service == "ssm" and call.action == "PutParameter":
        _parameter_size(call.document)
    elif call.service == "ec2" and call.action == "CreateTags":
        _taggable(account, call)
    elif call.service == "ec2" and call.action in PROTECTIONS:
        _unprotected(account, call)
    elif call.service == "autoscaling":
        _group_exists(account, call)
        if call.action == "SetDesiredCapacity":
            _desired_capacity(account, call)
        elif call.action in ("CreateAutoScalingGroup", "UpdateAutoScalingGroup"):
            _group_sizes(account, call)
        elif call.action == "PutLifecycleHook":
            _hook_timeout(call)
        elif call.action == "DeleteAutoScalingGroup":
            _group_empty(account, call)


def _instances(account: Account) -> dict[str, Any]:
    return {
        instance.id: instance for reservation in account.ec2.reservations.values() for instance in reservation.instances
    }


def _no_reserved_tags(call: Call) -> None:
    for name, key in call.form.items():
        if _TAG_KEY.fullmatch(name) and key.lower().startswith(RESERVED_PREFIX):
            code = "InvalidParameterValue" if call.service == "ec2" else "ValidationError"
            reason = f"Tag keys starting with '{RESERVED_PREFIX}' are reserved for internal use"
            raise ApiError(code, f"Value ( {key} ) for parameter key is invalid. {reason}")


def _taggable(account: Account, call: Call) -> None:
    instances = _instances(account)
    for resource in call.values("ResourceId"):
        if resource.startswith("i-") and resource not in instances:
            raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{resource}' does not exist")
        tags_in_metadata = (
            resource in instances and instances[resource].metadata_options.instance_metadata_tags == "enabled"
        )
        for key in (
            refused_keys(call.form[name] for name in call.form if name.endswith(".Key")) if tags_in_metadata else ()
        ):
            raise ApiError(
                "InvalidParameterValue",
                f"'{key}' is not a valid tag key. Tag keys must match pattern ({TAG_KEY_PATTERN}), and must not be a "
                "reserved name ('.', '..', '_index')",
            )


def _unprotected(account: Account, call: Call) -> None:
    """Refuse the whole call if one instance is protected. moto would end the instances before the protected one."""
    flag, word, attribute = PROTECTIONS[call.action]
    instances = _instances(account)
    for instance_id in call.values("InstanceId"):
        if getattr(instances.get(instance_id), flag, False) is True:
            raise ApiError(
                "OperationNotPermitted",
                f"The instance '{instance_id}' may not be {word}. Modify its '{attribute}' instance attribute and try "
                "again.",
            )


def _parameter_size(document: dict[str, Any]) -> None:
    size = len(str(document.get("Value", "")).encode())
    tier = document.get("Tier", "Standard")
    if tier == "Standard" and size > STANDARD_BYTES:
        raise ApiError(
            "ValidationException",
            f"Standard tier parameters support a maximum parameter value of {STANDARD_BYTES} characters. To create "
            "a larger parameter value, "
            "upgrade the parameter to use the advanced-parameter tier.",
        )
    if size > ADVANCED_BYTES:
        raise ApiError(
            "ValidationException",
            f"Advanced tier parameters support a maximum parameter value of {ADVANCED_BYTES} characters.",
        )


def _named_group(account: Account, call: Call) -> Any:
    return account.autoscaling.autoscaling_groups.get(call.form.get("AutoScalingGroupName", ""))


def _group_exists(account: Account, call: Call) -> None:
    name = call.form.get("AutoScalingGroupName")
    if (
        name is not None
        and call.action != "CreateAutoScalingGroup"
        and name not in account.autoscaling.autoscaling_groups
    ):
        raise ApiError("ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")


def _desired_capacity(account: Account, call: Call) -> None:
    group = _named_group(account, call)
    desired = call.number("DesiredCapacity")
    if desired is None:
        raise ApiError("ValidationError", "DesiredCapacity must be a number")
    if desired > group.max_size:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired} is above max value {group.max_size} for the AutoScalingGroup.",
        )
    if desired < group.min_size:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired} is below min value {group.min_size} for the AutoScalingGroup.",
        )


def _group_sizes(account: Account, call: Call) -> None:
    group = _named_group(account, call) if call.action == "UpdateAutoScalingGroup" else None
    min_size, max_size, desired = call.number("MinSize"), call.number("MaxSize"), call.number("DesiredCapacity")
    min_size = group.min_size if min_size is None and group is not None else min_size
    max_size = group.max_size if max_size is None and group is not None else max_size
    if min_size is None or max_size is None:
        return
    if min_size > max_size:
        raise ApiError(
            "ValidationError", f"Max bound, {max_size}, must be greater than or equal to min bound, {min_size}"
        )
    if desired is not None and not min_size <= desired <= max_size:
        raise ApiError(
            "ValidationError",
            f"Desired capacity:{desired} must be between the specified min size:{min_size} and max size:{max_size}",
        )


def _hook_timeout(call: Call) -> None:
    timeout = call.number("HeartbeatTimeout")
    if timeout is not None and not 30 <= timeout <= 7200:
        raise ApiError("ValidationError", "HeartbeatTimeout must be between 30 and 7200 seconds, inclusive")


def _group_empty(account: Account, call: Call) -> None:
    if call.form.get("ForceDelete", "false").lower() != "true" and _named_group(account, call).instance_states:
        raise ApiError(
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
            "still in the group.",
        )
