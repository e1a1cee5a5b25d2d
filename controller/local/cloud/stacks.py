"""Complete CloudFormation stacks with what moto leaves out: a group's capacity rebalancing, stack tags and lifecycle
hooks, a table's stream and time to live, a role's managed policies, and the transform of `AWS::Serverless::Function`.

The AWS emulator moto creates no wait conditions, no alarms and no state of mount targets. This module does not wait for
wait conditions, alarms or mount targets.
"""

from __future__ import annotations

from typing import Any

from dyntrain.controller.local.account import Account
from moto.cloudformation.parsing import clean_json

GROUP_TYPE = "AWS::AutoScaling::AutoScalingGroup"
TABLE_TYPE = "AWS::DynamoDB::Table"
ROLE_TYPE = "AWS::IAM::Role"
FUNCTION_TYPE = "AWS::Serverless::Function"


def complete_stack(account: Account, name: str) -> list[tuple[str, str]]:
    """Complete a stack that moto has just created with the parts that moto leaves out. Returns the stack's lifecycle
    hooks as pairs (group, hook). As in AWS, a hook exists before the first instance of its group runs.
    """
    stack = account.cloudformation.get_stack(name)
    stack_hooks: list[tuple[str, str]] = []
    for logical_id, resource in stack.template_dict["Resources"].items():
        complete_resource = _COMPLETION_BY_TYPE.get(resource["Type"])
        if complete_resource is not None and stack.resource_map.get(logical_id) is not None:
            physical_id = str(clean_json({"Ref": logical_id}, stack.resource_map))
            properties = clean_json(resource["Properties"], stack.resource_map)
            stack_hooks += [(physical_id, hook) for hook in complete_resource(account, physical_id, properties)]
            if resource["Type"] == GROUP_TYPE:
                _add_stack_tags(account.autoscaling.autoscaling_groups[physical_id], stack, logical_id)
    return stack_hooks


def _add_stack_tags(group: Any, stack: Any, logical_id: str) -> None:
    """Add the tags that CloudFormation gives to a stack's group
    (https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-autoscaling-autoscalinggroup-tagproperty.html).
    """
    stack_tags = {"stack-name": stack.name, "stack-id": stack.stack_id, "logical-id": logical_id}
    group.tags = [
        *group.tags,
        *(
            {"Key": f"aws:cloudformation:{key}", "Value": value, "PropagateAtLaunch": True}
            for key, value in stack_tags.items()
        ),
    ]


def _complete_group(account: Account, name: str, properties: dict[str, Any]) -> list[str]:
    """Complete a stack's Auto Scaling group, and return the names of its lifecycle hooks."""
    rebalances_capacity = str(properties.get("CapacityRebalance", False)).lower() == "true"
    account.autoscaling.autoscaling_groups[name].capacity_rebalance = rebalances_capacity
    hook_properties = properties.get("LifecycleHookSpecificationList", [])
    for hook in hook_properties:
        account.autoscaling.create_lifecycle_hook(
            hook["LifecycleHookName"],
            name,
            hook["LifecycleTransition"],
            int(hook["HeartbeatTimeout"]),
            hook["DefaultResult"],
        )
    return [hook["LifecycleHookName"] for hook in hook_properties]


def _complete_table(account: Account, name: str, properties: dict[str, Any]) -> list[str]:
    if "StreamSpecification" in properties:
        stream_specification = {**properties["StreamSpecification"], "StreamEnabled": True}
        account.dynamodb.tables[name].set_stream_specification(stream_specification)
    if "TimeToLiveSpecification" in properties:
        account.dynamodb.update_time_to_live(name, properties["TimeToLiveSpecification"])
    return []


def _complete_role(account: Account, name: str, properties: dict[str, Any]) -> list[str]:
    for policy_arn in properties.get("ManagedPolicyArns", []):
        account.iam.attach_role_policy(policy_arn, name)
    return []


_COMPLETION_BY_TYPE = {GROUP_TYPE: _complete_group, TABLE_TYPE: _complete_table, ROLE_TYPE: _complete_role}


def prepare_deletion(account: Account, name: str) -> None:
    """Prepare a stack for deletion: remove resources that moto would leave behind or refuse to delete. The removed
    resources are parts of a network, policies that are attached to roles, and groups that are already deleted.
    """
    stack = next(
        (
            candidate
            for candidate in account.cloudformation.stacks.values()
            if name in (candidate.name, candidate.stack_id)
        ),
        None,
    )
    if stack is None:
        return
    resources = stack.template_dict["Resources"]
    for resource_type, prepare_resource in _PREPARATION_BY_TYPE.items():
        for logical_id in [
            logical_id for logical_id, resource in resources.items() if resource["Type"] == resource_type
        ]:
            if stack.resource_map.get(logical_id) is not None:
                prepare_resource(account, str(clean_json({"Ref": logical_id}, stack.resource_map)))
    for logical_id, resource in resources.items():
        group = stack.resource_map.get(logical_id) if resource["Type"] == GROUP_TYPE else None
        if group is not None and group.physical_resource_id not in account.autoscaling.autoscaling_groups:
            del stack.resource_map._parsed_resources[logical_id]


def _delete_route_table(account: Account, name: str) -> None:
    for association in list(account.ec2.get_route_table(name).associations):
        account.ec2.disassociate_route_table(association)
    account.ec2.delete_route_table(name)


def _delete_gateway(account: Account, name: str) -> None:
    for gateway in account.ec2.describe_internet_gateways([name]):
        if gateway.vpc is not None:
            account.ec2.detach_internet_gateway(name, gateway.vpc.id)
    account.ec2.delete_internet_gateway(name)


def _release_address(account: Account, name: str) -> None:
    """Release an Elastic IP address. `name` is the address itself, not its allocation id, because a template's
    reference to an Elastic IP gives the address.
    """
    (address,) = [candidate for candidate in account.ec2.addresses if candidate.public_ip == name]
    account.ec2.release_address(allocation_id=address.allocation_id)


def _detach_policies(account: Account, name: str) -> None:
    for policy_arn in list(account.iam.get_role(name).managed_policies):
        account.iam.detach_role_policy(policy_arn, name)


_PREPARATION_BY_TYPE = {  # in order: a resource comes before the resources that it depends on
    ROLE_TYPE: _detach_policies,
    "AWS::EC2::VPCEndpoint": lambda account, name: account.ec2.delete_vpc_endpoints([name]),
    "AWS::EC2::NatGateway": lambda account, name: account.ec2.delete_nat_gateway(name),
    "AWS::EC2::EIP": _release_address,
    "AWS::EC2::InternetGateway": _delete_gateway,
    "AWS::EC2::RouteTable": _delete_route_table,
}


def all_function_properties(account: Account, name: str) -> list[dict[str, Any]]:
    """The properties of the stack's Lambda functions, with resolved references. A function's own environment variables
    take precedence over variables of `Globals`.
    """
    stack = account.cloudformation.get_stack(name)
    shared_variables = (
        stack.template_dict.get("Globals", {}).get("Function", {}).get("Environment", {}).get("Variables", {})
    )
    resolved_properties = []
    for resource in stack.template_dict["Resources"].values():
        if resource["Type"] == FUNCTION_TYPE:
            properties = resource["Properties"]
            function_variables = {**shared_variables, **properties.get("Environment", {}).get("Variables", {})}
            kept_properties = {key: value for key, value in properties.items() if key not in ("Role", "Environment")}
            resolved_properties.append(
                clean_json({**kept_properties, "Environment": {"Variables": function_variables}}, stack.resource_map)
            )
    return resolved_properties
