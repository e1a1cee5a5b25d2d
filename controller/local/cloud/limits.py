"""Check limits of AWS that moto does not enforce, and refuse price queries. Each check raises ApiError with AWS's error
code and wording.
"""

from __future__ import annotations

import re
from typing import Any

from dyntrain.controller.contract.metadata_tags import TAG_KEY_PATTERN, refused_keys
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import ApiCall
from dyntrain.controller.local.errors import ApiError

STANDARD_PARAMETER_BYTES = 4096  # longest value of a parameter in SSM's standard tier
ADVANCED_PARAMETER_BYTES = 8192  # longest value of a parameter in SSM's advanced tier
# Users may not write tags with this prefix. Auto Scaling's error code is from this page, not from an observed answer:
# https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html
RESERVED_TAG_PREFIX = "aws:"
_TAG_KEY_PARAMETER = re.compile(r"Tags?\.(member\.)?\d+\.Key")
# The error code OperationNotPermitted is from this page, not from an observed answer:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
PROTECTION_BY_ACTION = {
    "TerminateInstances": ("disable_api_termination", "terminated", "disableApiTermination"),
    "StopInstances": ("disable_api_stop", "stopped", "disableApiStop"),
}


def check_call(account: Account, call: ApiCall) -> None:
    """Raise ApiError when AWS would refuse the call."""
    if call.service == "pricing":
        raise ApiError("AccessDeniedException", "the embedded cloud has no price list")
    if call.service in ("ec2", "autoscaling"):
        _check_no_reserved_tag_key(call)
    if call.service == "ssm" and call.action == "PutParameter":
        _check_parameter_size(call.document)
    elif call.service == "ec2" and call.action == "CreateTags":
        _check_tags_allowed(account, call)
    elif call.service == "ec2" and call.action in PROTECTION_BY_ACTION:
        _check_not_protected(account, call)
    elif call.service == "autoscaling":
        _check_group_exists(account, call)
        if call.action == "SetDesiredCapacity":
            _check_desired_capacity(account, call)
        elif call.action in ("CreateAutoScalingGroup", "UpdateAutoScalingGroup"):
            _check_group_sizes(account, call)
        elif call.action == "PutLifecycleHook":
            _check_hook_timeout(call)
        elif call.action == "DeleteAutoScalingGroup":
            _check_group_empty(account, call)


def _instances_by_id(account: Account) -> dict[str, Any]:
    return {
        instance.id: instance for reservation in account.ec2.reservations.values() for instance in reservation.instances
    }


def _check_no_reserved_tag_key(call: ApiCall) -> None:
    for parameter_name, tag_key in call.form.items():
        if _TAG_KEY_PARAMETER.fullmatch(parameter_name) and tag_key.lower().startswith(RESERVED_TAG_PREFIX):
            error_code = "InvalidParameterValue" if call.service == "ec2" else "ValidationError"
            reason = f"Tag keys starting with '{RESERVED_TAG_PREFIX}' are reserved for internal use"
            raise ApiError(error_code, f"Value ( {tag_key} ) for parameter key is invalid. {reason}")


def _check_tags_allowed(account: Account, call: ApiCall) -> None:
    instances = _instances_by_id(account)
    for resource_id in call.list_values("ResourceId"):
        if resource_id.startswith("i-") and resource_id not in instances:
            raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{resource_id}' does not exist")
        tags_in_metadata = (
            resource_id in instances and instances[resource_id].metadata_options.instance_metadata_tags == "enabled"
        )
        for tag_key in (
            refused_keys(call.form[name] for name in call.form if name.endswith(".Key")) if tags_in_metadata else ()
        ):
            raise ApiError(
                "InvalidParameterValue",
                f"'{tag_key}' is not a valid tag key. Tag keys must match pattern ({TAG_KEY_PATTERN}), and must not be "
                "a reserved name ('.', '..', '_index')",
            )


def _check_not_protected(account: Account, call: ApiCall) -> None:
    """Refuse a call that would stop or terminate a protected instance. Without such a refusal, moto would stop or
    terminate the instances that the call names before the protected instance.
    """
    moto_attribute, protected_state, aws_attribute = PROTECTION_BY_ACTION[call.action]
    instances = _instances_by_id(account)
    for instance_id in call.list_values("InstanceId"):
        if getattr(instances.get(instance_id), moto_attribute, False) is True:
            raise ApiError(
                "OperationNotPermitted",
                f"The instance '{instance_id}' may not be {protected_state}. Modify its '{aws_attribute}' instance "
                "attribute and try again.",
            )


def _check_parameter_size(document: dict[str, Any]) -> None:
    value_byte_count = len(str(document.get("Value", "")).encode())
    parameter_tier = document.get("Tier", "Standard")
    if parameter_tier == "Standard" and value_byte_count > STANDARD_PARAMETER_BYTES:
        raise ApiError(
            "ValidationException",
            f"Standard tier parameters support a maximum parameter value of {STANDARD_PARAMETER_BYTES} characters. "
            "To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier.",
        )
    if value_byte_count > ADVANCED_PARAMETER_BYTES:
        raise ApiError(
            "ValidationException",
            f"Advanced tier parameters support a maximum parameter value of {ADVANCED_PARAMETER_BYTES} characters.",
        )


def _group_of_call(account: Account, call: ApiCall) -> Any:
    return account.autoscaling.autoscaling_groups.get(call.form.get("AutoScalingGroupName", ""))


def _check_group_exists(account: Account, call: ApiCall) -> None:
    name = call.form.get("AutoScalingGroupName")
    if (
        name is not None
        and call.action != "CreateAutoScalingGroup"
        and name not in account.autoscaling.autoscaling_groups
    ):
        raise ApiError("ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")


def _check_desired_capacity(account: Account, call: ApiCall) -> None:
    group = _group_of_call(account, call)
    desired_capacity = call.integer_parameter("DesiredCapacity")
    if desired_capacity is None:
        raise ApiError("ValidationError", "DesiredCapacity must be a number")
    if desired_capacity > group.max_size:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired_capacity} is above max value {group.max_size} for the "
            "AutoScalingGroup.",
        )
    if desired_capacity < group.min_size:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired_capacity} is below min value {group.min_size} for the "
            "AutoScalingGroup.",
        )


def _check_group_sizes(account: Account, call: ApiCall) -> None:
    group = _group_of_call(account, call) if call.action == "UpdateAutoScalingGroup" else None
    min_size, max_size, desired_capacity = (
        call.integer_parameter("MinSize"),
        call.integer_parameter("MaxSize"),
        call.integer_parameter("DesiredCapacity"),
    )
    min_size = group.min_size if min_size is None and group is not None else min_size
    max_size = group.max_size if max_size is None and group is not None else max_size
    if min_size is None or max_size is None:
        return
    if min_size > max_size:
        raise ApiError(
            "ValidationError", f"Max bound, {max_size}, must be greater than or equal to min bound, {min_size}"
        )
    if desired_capacity is not None and not min_size <= desired_capacity <= max_size:
        raise ApiError(
            "ValidationError",
            f"Desired capacity:{desired_capacity} must be between the specified min size:{min_size} and max "
            f"size:{max_size}",
        )


def _check_hook_timeout(call: ApiCall) -> None:
    timeout_seconds = call.integer_parameter("HeartbeatTimeout")
    if timeout_seconds is not None and not 30 <= timeout_seconds <= 7200:
        raise ApiError("ValidationError", "HeartbeatTimeout must be between 30 and 7200 seconds, inclusive")


def _check_group_empty(account: Account, call: ApiCall) -> None:
    if call.form.get("ForceDelete", "false").lower() != "true" and _group_of_call(account, call).instance_states:
        raise ApiError(
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
            "still in the group.",
        )
