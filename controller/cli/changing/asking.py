"""Make and carry out requests to change a cluster's size, for the commands and for the dashboard.

This module reads the facts; the module `requests` decides by them.
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
    resize,
    tag,
    untag,
)
from dyntrain.controller.cli.changing.restarts import Restart, refuse_if_over, restart
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.contract.messages import BASE_TAG
from dyntrain.controller.core.decisions.replacement import refusal
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.loops.converge import found_groups
from dyntrain.controller.loops.ports import Batch, Ports
from dyntrain.controller.loops.resync import facts_of_instance


def scale_request(connection: Connection, cluster: str, n: int, group: str | None) -> Resize:
    """The request to set a group's size. Raises GiveUp for an impossible size, and for more workers after the job."""
    policy = policy_of(connection.registry, cluster)
    request = resize(policy, _group_sizes(connection, cluster), group, to=n)
    if request.new_size > request.old_size:
        refuse_if_over(_snapshot_of(connection, cluster))
    return request


def launch_request(connection: Connection, cluster: str, count: int, group: str | None) -> Resize:
    """The request to launch `count` workers. Raises GiveUp when the group cannot grow, and for a job that is over."""
    policy = policy_of(connection.registry, cluster)
    refuse_if_over(_snapshot_of(connection, cluster))
    return resize(policy, _group_sizes(connection, cluster), group, increase=count)


def add_request(connection: Connection, cluster: str, instances: Sequence[str]) -> Tag:
    """The request to tag running machines. Raises GiveUp for unusable machines, and for a job that is over."""
    ports, registry, elastic = connection
    policy_of(registry, cluster)
    refuse_if_over(_snapshot_of(connection, cluster))
    return tag(cluster, instances, ports.instances.by_id(instances), elastic.of(cluster))


def resizable_groups(connection: Connection, cluster: str) -> Mapping[str, GroupSize]:
    """The groups of elastic workers that a person may resize."""
    return elastic_groups(policy_of(connection.registry, cluster), _group_sizes(connection, cluster))


def remove_request(connection: Connection, instances: Sequence[str], *, now: bool = False) -> Untag:
    """The request that workers leave the job. `now`: the workers wait for no leave window."""
    ports, registry, elastic = connection
    clusters = {cluster_of_instance(ports, registry, instance) for instance in instances}
    if len(clusters) > 1:
        raise GiveUp(
            f"the instances belong to several clusters ({', '.join(sorted(clusters))}); name instances of one cluster"
        )
    cluster = clusters.pop()
    views = [node.view for node in snapshot(ports, registry, cluster, elastic).decision.nodes]
    return untag(cluster, instances, views, elastic.of(cluster), now=now)


def replace_request(connection: Connection, old: str, new: str) -> Replace:
    """The request to replace the base node `old` by the node `new`. Raises GiveUp when that is impossible."""
    ports, registry, elastic = connection
    cluster = cluster_of_instance(ports, registry, new)
    policy = registry.policy(cluster)
    if policy is None:
        raise GiveUp(
            f"the cluster {cluster!r} of {new} has no valid policy; `dyntrain cluster show {cluster}` shows the error"
        )
    now = ports.clock()
    facts = {instance: node.facts for instance, node in ports.nodes.of_cluster(cluster).items()}
    for described in ports.instances.by_id([old, new]):  # the table may be as old as the last resync
        if described.instance in facts:
            facts[described.instance] = facts[described.instance].join(facts_of_instance(described, now, elastic))
    if new not in facts:
        raise GiveUp(f"the controller does not know {new} in {cluster} yet; try again in a moment")
    rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
    views = [view(node, rules, now) for node in facts.values()]
    if problem := refusal(old, new, views, ports.clusters.get(cluster).membership, rules):
        raise GiveUp(problem.format(old=old, new=new))
    base = [old, *(node.instance for node in views if node.base and node.instance not in (old, new))]
    described_nodes = ports.instances.by_id([*base, new])
    bare = not any(node.instance == new and node.profile for node in described_nodes)
    return Replace(cluster, old, new, policy.resync_seconds, base_profile(new, base, described_nodes), bare)


def restart_request(connection: Connection, cluster: str) -> Restart:
    """The request to restart the cluster's job. Raises GiveUp for a job that is not over or cannot restart."""
    return restart(_snapshot_of(connection, cluster))


def carry_out(ports: Ports, request: Request) -> None:
    """Carry out the request; repeating is safe. Raises GiveUp for refused instances once all others are changed."""
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
    """Carry out the request and return its description; with `dry_run` only return the description. `say_where` is
    called first, with the cluster's name.
    """
    say_where(f"cluster {request.cluster}")
    if isinstance(request, Resize) and request.old_size == request.new_size:
        return request.sentence
    if dry_run:
        return f"{describe(request)}\nnothing was changed (--dry-run)"
    carry_out(ports, request)
    return f"{describe(request)}\n`dyntrain status --cluster {request.cluster} --watch` shows it"


def describe(request: Request) -> str:
    """Describe the request by a sentence and an `aws` command."""
    return f"{request.sentence}\n  as by: {request.aws_command}"


def _raise_for_failures(batch: Batch) -> None:
    refused = [f"{instance}: {reason}" for instance, reason in sorted(batch.refused.items())]
    missing_texts = [f"{instance} does not exist in EC2 any more" for instance in sorted(batch.missing)]
    if refused or missing_texts:
        raise GiveUp("; ".join([*refused, *missing_texts]))


def _snapshot_of(connection: Connection, cluster: str) -> Snapshot:
    ports, registry, elastic = connection
    return snapshot(ports, registry, cluster, elastic)


def _group_sizes(connection: Connection, cluster: str) -> dict[str, GroupSize]:
    ports, registry, _ = connection
    groups = Rules(policy_of(registry, cluster), stack_groups=found_groups(ports, registry, cluster)).groups
    return dict(ports.groups.sizes(groups))
