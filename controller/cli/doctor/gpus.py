"""The doctor's check of a cluster's GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dyntrain.controller.cli.doctor.observations import ClusterSeen, StackSeen
from dyntrain.controller.contract.gpu_families import cannot_be_a_node, cannot_train, family_of, unknown_gpu_warning
from dyntrain.controller.contract.messages import ClusterPolicy

Judged = tuple[Literal["ok", "wrong", "unknown"], str]


def gpu_verdict(cluster: ClusterSeen, policy: ClusterPolicy | None) -> Judged | None:
    """The verdict on the cluster's GPUs, with a remedy; None for machines without known GPUs. Only a stack of the
    cluster template says which build of MXNet the nodes have.
    """
    stack = cluster.stack.parameters if isinstance(cluster.stack, StackSeen) else {}
    if "Accelerator" in stack:
        return _of_stack(stack)
    types = {policy.pool.instance_type} if policy is not None and policy.pool is not None else set()
    if isinstance(cluster.groups, Mapping):
        types = types.union(*(group.types for group in cluster.groups.values()))
    gpu_types = sorted(name for name in types if family_of(name) is not None)
    if not gpu_types:
        return None
    problem = next(filter(None, map(cannot_train, gpu_types)), "")
    return (
        ("wrong", f"{problem}; ignore this if the nodes have an MXNet that was built for these GPUs")
        if problem
        else ("ok", ", ".join(gpu_types))
    )


def _of_stack(parameters: Mapping[str, str]) -> Judged | None:
    name, build = parameters.get("InstanceType", ""), parameters.get("MXNet", "")
    family = family_of(name)
    if parameters["Accelerator"] != "Nvidia":
        if family is None:
            return None
        problem = f"{name} has {family.gpu} GPUs, but the nodes train on the CPU: update the stack with "
        return "wrong", cannot_be_a_node(name) or f"{problem}Accelerator=Nvidia"
    if refusal := cannot_be_a_node(name, build):
        return "wrong", refusal
    if family is None:
        return "unknown", unknown_gpu_warning(name)
    return "ok", f"{family.gpu}, compute capability {family.capability}"
