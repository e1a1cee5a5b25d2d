"""Make and carry out requests to change a cluster's size, for the commands and for the dashboard.

This module reads the facts that the checks in the module `changing.requests` need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.query import Snapshot, cluster_of_instance, policy_of, snapshot
from dyntrain.controller.cli.changing.requests import (
    Replace,
    Request,
    Resize,
    Tag,
    Untag,
    base_profile,
    elastic_groups,
    plan_resize,
    plan_tag,
    plan_untag,
)
from dyntrain.controller.cli.changing.restarts import Restart, plan_restart, refuse_if_job_over
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.contract.messages import BASE_TAG
from dyntrain.controller.core.decisions.replacement import replacement_refusal
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.loops.converge import found_groups
from dyntrain.controller.loops.ports import Batch, Ports
from dyntrain.controller.loops.resync import facts_of_instance


def scaling_request(connection: Connection, cluster: str, n: int, group: str | None) -> Resize:
    """The request to set the desired capacity of one of the cluster's Auto Scaling groups. Raises GiveUp for a size
    outside the group's limits, and for a larger size once the cluster's job is over.
    """
    policy = policy_of(connection.registry, cluster)
    request = plan_resize(policy, _group_sizes(connection, cluster), group, to=n)
    if request.new_size > request.old_size:
        refuse_if_job_over(_snapshot_of(connection, cluster))
    return request


def launch_request(connection: Connection, cluster: str, count: int, group: str | None) -> Resize:
    """The request to launch `count` more workers. Raises GiveUp if the Auto Scaling group cannot grow by `count`, or if
    the cluster's job is over.
    """
    policy = policy_of(connection.registry, cluster)
    refuse_if_job_over(_snapshot_of(connection, cluster))
    return plan_resize(policy, _group_sizes(connection, cluster), group, increase=count)


def tagging_request(connection: Connection, cluster: str, instances: Sequence[str]) -> Tag:
    """The request to tag running machines as workers. Raises GiveUp if the machines cannot be tagged or the cluster's
    job is over.
    """
    ports, registry, elastic_tag = connection
    policy_of(registry, cluster)
    refuse_if_job_over(_snapshot_of(connection, cluster))
    return plan_tag(cluster, instances, ports.instances.by_id(instances), elastic_tag.of(cluster))


def resizable_groups(connection: Connection, cluster: str) -> Mapping[str, GroupSize]:
    """The Auto Scaling groups of elastic workers that a person may resize, with the groups' sizes."""
    return elastic_groups(policy_of(connection.registry, cluster), _group_sizes(connection, cluster))


def removal_request(connection: Connection, instances: Sequence[str], *, now: bool = False) -> Untag:
    """The request that workers leave the job. If `now` is true, the workers do not wait for a leave window."""
    ports, registry, elastic_tag = connection
    cluster_names = {cluster_of_instance(ports, registry, instance) for instance in instances}
    if len(cluster_names) > 1:
        raise GiveUp(
            f"the instances belong to several clusters ({', '.join(sorted(cluster_names))}): name instances of one "
            "cluster"
        )
    cluster = cluster_names.pop()
    node_views = [node.view for node in snapshot(ports, registry, cluster, elastic_tag).decision.nodes]
    return plan_untag(cluster, instances, node_views, elastic_tag.of(cluster), now=now)


def replacement_request(connection: Connection, old: str, new: str) -> Replace:
    """The request to replace the base node `old` by the node `new`. Raises GiveUp if `new` cannot replace `old`."""
    ports, registry, elastic_tag = connection
    cluster = cluster_of_instance(ports, registry, new)
    policy = registry.policy(cluster)
    if policy is None:
        raise GiveUp(
            f"the cluster {cluster!r} of {new} has no valid policy; `dyntrain cluster show {cluster}` shows the error"
        )
    now = ports.clock()
    facts_by_instance = {instance: node.facts for instance, node in ports.nodes.of_cluster(cluster).items()}
    for machine in ports.instances.by_id([old, new]):  # the table may be as old as the last resync
        if machine.instance in facts_by_instance:
            machine_facts = facts_of_instance(machine, now, elastic_tag)
            facts_by_instance[machine.instance] = facts_by_instance[machine.instance].join(machine_facts)
    if new not in facts_by_instance:
        raise GiveUp(f"the controller does not know {new} in {cluster} yet; try again in a moment")
    rules = Rules(policy, elastic_tag, found_groups(ports, registry, cluster))
    node_views = [view(node, rules, now) for node in facts_by_instance.values()]
    if refusal_reason := replacement_refusal(old, new, node_views, ports.clusters.get(cluster).membership, rules):
        raise GiveUp(refusal_reason.format(old=old, new=new))
    base_nodes = [old, *(node.instance for node in node_views if node.base and node.instance not in (old, new))]
    described_nodes = ports.instances.by_id([*base_nodes, new])
    has_no_profile = not any(node.instance == new and node.profile for node in described_nodes)
    return Replace(
        cluster, old, new, policy.resync_seconds, base_profile(new, base_nodes, described_nodes), has_no_profile
    )


def restart_request(connection: Connection, cluster: str) -> Restart:
    """The request to restart the cluster's job. Raises GiveUp for a job that is not over or cannot be restarted."""
    return plan_restart(_snapshot_of(connection, cluster))


def carry_out(ports: Ports, request: Request) -> None:
    """Make the changes in AWS that the request describes. Calling the function again with the same request is safe. If
    AWS refuses to change some instances, all other instances are changed before GiveUp is raised.
    """
    match request:
        case Resize():
            if request.new_size != request.old_size:
                ports.groups.set_desired(request.group, request.new_size)
        case Tag():
            _raise_for_failures(ports.instances.tag(request.instances, request.key, ""))
        case Untag():
            if request.hurried:  # first, so that no leave window delays the removal
                _raise_for_failures(ports.instances.tag(request.hurried, LEAVE_TAG, LEAVE_NOW))
            if request.instances:
                _raise_for_failures(ports.instances.untag(request.instances, request.key))
        case Replace():
            if request.profile is not None:  # before the tag: a base node without the profile cannot publish
                ports.instances.give_profile(request.new, request.profile)
            _raise_for_failures(ports.instances.tag([request.new], BASE_TAG, request.old))
        case Restart():
            if request.to_reboot:
                _raise_for_failures(ports.instances.reboot(request.to_reboot))
            if request.to_start:
                _raise_for_failures(ports.instances.start(request.to_start))
        case _:
            assert_never(request)


def carry_out_unless_dry_run(ports: Ports, request: Request, dry_run: bool, say_where: Callable[[str], object]) -> str:
    """Carry out the request unless `dry_run` is true, and return the request's description. Before any change,
    `say_where` is called with the cluster's name.
    """
    say_where(f"cluster {request.cluster}")
    if isinstance(request, Resize) and request.old_size == request.new_size:
        return request.sentence
    if dry_run:
        return f"{describe(request)}\nnothing was changed (--dry-run)"
    carry_out(ports, request)
    return f"{describe(request)}\n`dyntrain status --cluster {request.cluster} --watch` shows it"


def describe(request: Request) -> str:
    """Describe the request by a sentence and by the equivalent `aws` command."""
    return f"{request.sentence}\n  as by: {request.aws_command}"


def _raise_for_failures(batch: Batch) -> None:
    refusal_texts = [f"{instance}: {reason}" for instance, reason in sorted(batch.refused.items())]
    not_found_texts = [f"{instance} does not exist in EC2 any more" for instance in sorted(batch.missing)]
    if refusal_texts or not_found_texts:
        raise GiveUp("; ".join([*refusal_texts, *not_found_texts]))


def _snapshot_of(connection: Connection, cluster: str) -> Snapshot:
    ports, registry, elastic_tag = connection
    return snapshot(ports, registry, cluster, elastic_tag)


def _group_sizes(connection: Connection, cluster: str) -> dict[str, GroupSize]:
    ports, registry, _ = connection
    group_names = Rules(policy_of(registry, cluster), stack_groups=found_groups(ports, registry, cluster)).groups
    return dict(ports.groups.sizes(group_names))
