"""The doctor's check of a cluster's GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dyntrain.controller.cli.doctor.observations import ClusterSeen, StackSeen
from dyntrain.controller.contract.gpu_families import cannot_be_a_node, cannot_train, family_of, unknown_gpu_warning
from dyntrain.controller.contract.messages import ClusterPolicy

VerdictAndReason = tuple[Literal["ok", "wrong", "unknown"], str]  # of a check


def gpu_verdict(cluster: ClusterSeen, policy: ClusterPolicy | None) -> VerdictAndReason | None:
    """The verdict on the cluster's GPUs with a remedy, or None for machines without known GPUs. The nodes' build of
    MXNet is known only from the parameters of a stack that was made from the cluster template.
    """
    stack_parameters = cluster.stack.parameters if isinstance(cluster.stack, StackSeen) else {}
    if "Accelerator" in stack_parameters:
        return _verdict_on_stack(stack_parameters)
    instance_types = {policy.pool.instance_type} if policy is not None and policy.pool is not None else set()
    if isinstance(cluster.groups, Mapping):
        instance_types = instance_types.union(*(group.types for group in cluster.groups.values()))
    gpu_types = sorted(instance_type for instance_type in instance_types if family_of(instance_type) is not None)
    if not gpu_types:
        return None
    problem = next(filter(None, map(cannot_train, gpu_types)), "")
    return (
        ("wrong", f"{problem}; ignore this if the nodes have an MXNet that was built for these GPUs")
        if problem
        else ("ok", ", ".join(gpu_types))
    )


def _verdict_on_stack(parameters: Mapping[str, str]) -> VerdictAndReason | None:
    instance_type, mxnet_build = parameters.get("InstanceType", ""), parameters.get("MXNet", "")
    gpu_family = family_of(instance_type)
    if parameters["Accelerator"] != "Nvidia":
        if gpu_family is None:
            return None
        problem = f"{instance_type} has {gpu_family.gpu} GPUs, but the nodes train on the CPU: update the stack with "
        return "wrong", cannot_be_a_node(instance_type) or f"{problem}Accelerator=Nvidia"
    if refusal := cannot_be_a_node(instance_type, mxnet_build):
        return "wrong", refusal
    if gpu_family is None:
        return "unknown", unknown_gpu_warning(instance_type)
    return "ok", f"{gpu_family.gpu}, compute capability {gpu_family.capability}"
