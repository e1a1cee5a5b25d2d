"""`dyntrain cluster`: the policies by which clusters are registered; `dyntrain events`: what was decided and done, and when."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import click

from controller.cli_connection import connect, moment, one_clear_line
from controller.cli_replay import checked_policy, parsed_policy
from controller.contract import CLUSTER_NAME, OWNER_TAG, ClusterPolicy
from controller.errors import ControllerError, GiveUp, Misconfigured
from controller.ports import Ports, TrailEntry
from controller.recorded import text_of

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)([smhd])$")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_MEMBERS_SHOWN = 5


@click.group()
def cluster() -> None:
    """Register clusters, look at their policies, remove them."""


@cluster.command()
@click.argument("name", required=False)
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="JSON file with the policy; options below overrule it.")
@click.option("--group", "groups", multiple=True, help="An Auto Scaling group of the cluster; may be given several times.")
@click.option("--min-workers", type=int)
@click.option("--max-workers", type=int)
@click.option("--set", "settings", multiple=True, metavar="FIELD=JSON", help="Any other field of the policy, such as terminate_orphans=true.")
@click.option("--replace", is_flag=True, help="Replace the policy that is there.")
def create(
    name: str | None,
    config: str | None,
    groups: tuple[str, ...],
    min_workers: int | None,
    max_workers: int | None,
    settings: tuple[str, ...],
    replace: bool,
) -> None:
    """Register the cluster NAME. A policy that is not valid is refused with the name of the field, and nothing is written."""
    with one_clear_line():
        fields: dict[str, Any] = parsed_policy(text_of(Path(config)), config) if config else {}
        given = {"cluster": name, "groups": list(groups) or None, "min_workers": min_workers, "max_workers": max_workers}
        fields.update({key: value for key, value in given.items() if value is not None})
        fields.update(_setting(text) for text in settings)
        policy = checked_policy(fields)
        ports, _registry, _suffix = connect()
        if not ports.parameters.put_policy(policy.cluster, policy.model_dump_json(), overwrite=replace):
            raise GiveUp(f"the cluster {policy.cluster!r} is registered already; give --replace to overwrite its policy")
        warnings = _warnings(ports, policy)
    click.echo(f"{policy.cluster} is registered; the controller knows it within 30 seconds")
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def _warnings(ports: Ports, policy: ClusterPolicy) -> list[str]:
    """What keeps IAM from letting the controller act on the registered groups."""
    try:
        tagged = ports.groups.tagged(OWNER_TAG) if policy.groups else {}
    except ControllerError as error:
        return [f"its groups could not be looked at: {error}"]
    bare = [group for group in policy.groups if tagged.get(group) != policy.cluster]
    return [f"there is no group {group} with the tag {OWNER_TAG}={policy.cluster}, without which the controller may not act on it" for group in bare]


@cluster.command()
def template() -> None:
    """Print the CloudFormation template that makes a cluster: network, shared volume, groups, launch templates, parameters."""
    click.echo(resources.files("node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8"), nl=False)


@cluster.command(name="list")
@click.option("--json", "as_json", is_flag=True, help='Print {"clusters": {name: policy}, "invalid": {name: problem}}.')
def list_clusters(as_json: bool) -> None:
    """All registered clusters; those whose policy is not valid with what is wrong."""
    with one_clear_line():
        _ports, registry, _suffix = connect()
        policies, problems = registry.all(), registry.problems()
    if as_json:
        click.echo(json.dumps({"clusters": {name: policy.model_dump(mode="json") for name, policy in policies.items()}, "invalid": problems}))
        return
    for name, policy in sorted(policies.items()):
        click.echo(f"{name}  {policy.min_workers} to {policy.max_workers} workers  groups: {', '.join(policy.groups) or 'none'}")
    for name, problem in sorted(problems.items()):
        click.echo(f"{name}  INVALID  {problem}")
    if not policies and not problems:
        click.echo("no cluster is registered")


@cluster.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True)
def show(name: str, as_json: bool) -> None:
    """The policy of the cluster NAME, with its defaults."""
    with one_clear_line():
        _ports, registry, _suffix = connect()
        policy = registry.policy(name)
        if policy is None:
            problem = registry.problems().get(name)
            raise GiveUp(f"the policy of {name!r} is invalid: {problem}" if problem else f"no cluster {name!r} is registered")
        fields = policy.model_dump(mode="json")
    if as_json:
        click.echo(json.dumps(fields))
        return
    for field, value in fields.items():
        click.echo(f"{field}: {json.dumps(value)}")


@cluster.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Although it still has nodes; they are left running as they are.")
def delete(name: str, force: bool) -> None:
    """Forget the cluster NAME: its parameters go, its instances are not touched."""
    with one_clear_line():
        if not re.fullmatch(CLUSTER_NAME, name):
            raise Misconfigured(f"{name!r} is no name of a cluster")
        ports, _registry, _suffix = connect()
        living = sorted(instance for instance, node in ports.nodes.of_cluster(name).items() if not node.facts.terminated)
        if living and not force:
            shown = ", ".join(living[:_MEMBERS_SHOWN]) + (", ..." if len(living) > _MEMBERS_SHOWN else "")
            raise GiveUp(f"{name} still has {len(living)} instances ({shown}); remove them first, or give --force to leave them running")
        deleted = ports.parameters.delete(name)
        if not deleted:
            raise GiveUp(f"no cluster {name!r} is registered")
    click.echo(f"deleted {', '.join(deleted)}")


@click.command()
@click.option("--cluster", "name", help="Only this cluster; default: all that are registered.")
@click.option("--since", default="1h", show_default=True, help="A span such as 30m, 2h or 7d, or an ISO 8601 time (UTC unless it says otherwise).")
@click.option("--instance", help="Only what concerns this instance.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def events(name: str | None, since: str, instance: str | None, as_json: bool) -> None:
    """The audit trail: every change of status and every action, for the last 30 days."""
    with one_clear_line():
        start = _start(since, time.time())
        ports, registry, _suffix = connect()
        names = [name] if name else sorted(registry.all())
        if name and registry.policy(name) is None:
            known = ", ".join(sorted(registry.all())) or "none"
            raise GiveUp(f"no cluster {name!r} is registered (known: {known})")
        found = [(each, entry) for each in names for entry in ports.clusters.trail(each, start)]
    for each, entry in sorted(found, key=lambda item: item[1].at):
        if instance is None or entry.entry.get("instance") == instance:
            click.echo(json.dumps({"at": entry.at, "cluster": each, **entry.entry}) if as_json else trail_line(each, entry))


def trail_line(cluster_name: str, entry: TrailEntry) -> str:
    fields: Mapping[str, str] = entry.entry
    if fields["kind"] == "status":
        what = f"{fields['instance']}  {fields['before'] or 'unknown'} -> {fields['after']}"
    else:
        what = "  ".join([fields["kind"], *(f"{key}={value}" for key, value in fields.items() if key not in ("kind", "detail") and value)])
    detail = " ".join(fields.get("detail", "").split())
    return f"{moment(entry.at)}  {cluster_name}  {what}" + (f"  ({detail})" if detail else "")


def _start(since: str, now: float) -> float:
    span = _SPAN.match(since)
    if span is not None:
        return now - float(span[1]) * _SECONDS[span[2]]
    try:
        moment = datetime.fromisoformat(since)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError as error:
        raise Misconfigured(f"--since {since!r} is neither a span such as 30m, 2h or 7d nor an ISO 8601 time") from error


def _setting(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    if not equals:
        raise Misconfigured(f"--set {text!r} is not FIELD=JSON")
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value
