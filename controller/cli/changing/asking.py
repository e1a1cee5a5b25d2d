"""Changes of a cluster's size, for the commands and for the page: facts are gathered here, `requests` decides, and
nothing is carried out without confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.query import Snapshot, cluster_of_instance, registered, snapshot
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
from dyntrain.controller.cli.changing.restarts import Restart, must_not_be_over, restart
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
    """The request to resize. Raises GiveUp, also for more workers of a job that is over; fewer are possible."""
    policy = registered(connection.registry, cluster)
    request = resize(policy, _sizes(connection, cluster), group, to=n)
    if request.after > request.before:
        must_not_be_over(_seen(connection, cluster))
    return request


def launch_request(connection: Connection, cluster: str, count: int, group: str | None) -> Resize:
    """The request to launch workers. Raises GiveUp, also where the job is over."""
    policy = registered(connection.registry, cluster)
    must_not_be_over(_seen(connection, cluster))
    return resize(policy, _sizes(connection, cluster), group, by=count)


def add_request(connection: Connection, cluster: str, instances: Sequence[str]) -> Tag:
    """The request to tag machines that already run. Raises GiveUp, also where the job is over, which would end them."""
    ports, registry, elastic = connection
    registered(registry, cluster)
    must_not_be_over(_seen(connection, cluster))
    return tag(cluster, instances, ports.instances.by_id(instances), elastic.of(cluster))


def sizes_to_choose_from(connection: Connection, cluster: str) -> Mapping[str, GroupSize]:
    """The groups of elastic workers that a person may resize."""
    return elastic_groups(registered(connection.registry, cluster), _sizes(connection, cluster))


def remove_request(connection: Connection, instances: Sequence[str], *, now: bool = False) -> Untag:
    """The request that workers leave. `now`: without waiting for a leave window."""
    ports, registry, elastic = connection
    clusters = {cluster_of_instance(ports, registry, instance) for instance in instances}
    if len(clusters) > 1:
        raise GiveUp(f"these are instances of several clusters ({', '.join(sorted(clusters))}); one at a time")
    cluster = clusters.pop()
    views = [node.view for node in snapshot(ports, registry, cluster, elastic).decision.nodes]
    return untag(cluster, instances, views, elastic.of(cluster), now=now)


def replace_request(connection: Connection, old: str, new: str) -> Replace:
    """The request to put NEW in the base node OLD's place. Raises GiveUp when that is impossible."""
    ports, registry, elastic = connection
    cluster = cluster_of_instance(ports, registry, new)
    policy = registry.policy(cluster)
    if policy is None:
        raise GiveUp(
            f"the cluster {cluster!r} of {new} has no valid policy; `dyntrain cluster show {cluster}` says what is "
            "wrong"
        )
    now = ports.clock()
    facts = {instance: node.facts for instance, node in ports.nodes.of_cluster(cluster).items()}
    for described in ports.instances.by_id([old, new]):  # the table may lag by a resync
        if described.instance in facts:
            facts[described.instance] = facts[described.instance].join(facts_of_instance(described, now, elastic))
    if new not in facts:
        raise GiveUp(f"nothing is known of {new} in {cluster} yet; try again in a moment")
    rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
    views = [view(node, rules, now) for node in facts.values()]
    if problem := refusal(old, new, views, ports.clusters.get(cluster).membership, rules):
        raise GiveUp(problem.format(old=old, new=new))
    base = [old, *(node.instance for node in views if node.base and node.instance not in (old, new))]
    shown = ports.instances.by_id([*base, new])
    bare = not any(one.instance == new and one.profile for one in shown)
    return Replace(cluster, old, new, policy.resync_seconds, base_profile(new, base, shown), bare)


def restart_request(connection: Connection, cluster: str) -> Restart:
    """The request to restart the cluster's job. Raises GiveUp where it is not over, or cannot restart."""
    return restart(_seen(connection, cluster))


def carry_out(ports: Ports, request: Request) -> None:
    """Carry out the request. Raises GiveUp for instances that AWS refused, once the others are done. Safe to repeat."""
    match request:
        case Resize():
            if request.after != request.before:
                ports.groups.set_desired(request.group, request.after)
        case Tag():
            _all_done(ports.instances.tag(request.instances, request.key, ""))
        case Untag():
            if request.hurried:  # first, so that no window holds them in between
                _all_done(ports.instances.tag(request.hurried, LEAVE_TAG, LEAVE_NOW))
            if request.instances:
                _all_done(ports.instances.untag(request.instances, request.key))
        case Replace():
            if request.profile is not None:  # before the tag: a base node that may not publish would take over in vain
                ports.instances.give_profile(request.new, request.profile)
            _all_done(ports.instances.tag([request.new], BASE_TAG, request.old))
        case Restart():
            if request.booted:
                _all_done(ports.instances.reboot(request.booted))
            if request.started:
                _all_done(ports.instances.start(request.started))
        case _:
            assert_never(request)


def carried_out(ports: Ports, request: Request, dry_run: bool, say_where: Callable[[str], object]) -> str:
    """Carry out the request and return what was done, or with `dry_run` what would be. `say_where` is called before,
    with the cluster.
    """
    say_where(f"cluster {request.cluster}")
    if isinstance(request, Resize) and request.before == request.after:
        return request.sentence
    if dry_run:
        return f"{describe(request)}\nnothing was changed (--dry-run)"
    carry_out(ports, request)
    return f"{describe(request)}\n`dyntrain status --cluster {request.cluster} --watch` shows it"


def describe(request: Request) -> str:
    """The request in a sentence, and as an `aws` command."""
    return f"{request.sentence}\n  as by: {request.aws}"


def _all_done(batch: Batch) -> None:
    refused = [f"{instance}: {why}" for instance, why in sorted(batch.refused.items())]
    missing = [f"{instance}: EC2 does not know it any more" for instance in sorted(batch.missing)]
    if refused or missing:
        raise GiveUp("; ".join([*refused, *missing]))


def _seen(connection: Connection, cluster: str) -> Snapshot:
    ports, registry, elastic = connection
    return snapshot(ports, registry, cluster, elastic)


def _sizes(connection: Connection, cluster: str) -> dict[str, GroupSize]:
    ports, registry, _ = connection
    groups = Rules(registered(registry, cluster), stack_groups=found_groups(ports, registry, cluster)).groups
    return dict(ports.groups.sizes(groups))
