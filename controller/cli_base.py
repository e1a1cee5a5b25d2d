"""`dyntrain base`: base nodes that are replaced on purpose."""

from __future__ import annotations

import re

import click

from controller.cli_connection import connect, one_clear_line
from controller.contract import BASE_TAG, INSTANCE_ID
from controller.converge import found_groups
from controller.errors import GiveUp, Misconfigured
from controller.ports import Ports
from controller.reading import cluster_of_instance
from controller.registry import Registry
from controller.replacement import refusal
from controller.resync import facts_of_instance
from controller.view import Rules, view


@click.group()
def base() -> None:
    """Base nodes, which hold the ps-lite servers and one of which runs the coordinator."""


@base.command()
@click.argument("old")
@click.argument("new")
def replace(old: str, new: str) -> None:
    """Put the prepared node NEW in the place of the base node OLD.

    At one boundary NEW's ps-lite servers take over and OLD leaves; until NEW can serve, nothing changes. OLD is then released as an elastic node
    would be: terminated, if the cluster launched it. Repeating the command does no harm. The base node that runs the coordinator is refused.
    """
    with one_clear_line():
        for instance in (old, new):
            if not re.fullmatch(INSTANCE_ID, instance):
                raise Misconfigured(f"{instance!r} is no instance id")
        click.echo(ask_to_replace(*connect(), old, new))


def ask_to_replace(ports: Ports, registry: Registry, suffix: str, old: str, new: str) -> str:
    """Tag NEW as the base node in OLD's place; returns what happens next. Raises GiveUp, with nothing written, when that cannot be."""
    cluster = cluster_of_instance(ports, registry, new)
    policy = registry.policy(cluster)
    if policy is None:
        raise GiveUp(f"the cluster {cluster!r} of {new} has no valid policy; `dyntrain cluster show {cluster}` says what is wrong")
    now = ports.clock()
    facts = {instance: node.facts for instance, node in ports.nodes.of_cluster(cluster).items()}
    for seen in ports.instances.by_id([old, new]):  # the table may be a resync behind
        if seen.instance in facts:
            facts[seen.instance] = facts[seen.instance].join(facts_of_instance(seen, now, suffix))
    if new not in facts:
        raise GiveUp(f"nothing is known of {new} in {cluster} yet; try again in a moment")
    rules = Rules(policy, suffix, found_groups(ports, registry, cluster))
    views = [view(node, rules, now) for node in facts.values()]
    if problem := refusal(old, new, views, ports.clusters.get(cluster).membership, rules):
        raise GiveUp(problem.format(old=old, new=new))
    if ports.instances.tag([new], BASE_TAG, old):
        raise GiveUp(f"EC2 does not know {new} any more; name another node that is prepared")
    return (
        f"{new} is to be a base node of {cluster} in the place of {old}: the controller sees that within {policy.resync_seconds:.0f} s, and at a "
        f"boundary after that the two are exchanged; `dyntrain status --cluster {cluster} --watch` shows it"
    )
