"""`dyntrain cluster`: register, list, show, restart and delete clusters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from dyntrain.controller.cli.answers.unmanaged import unmanaged_message
from dyntrain.controller.cli.shell.completion import CLUSTER
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.cli.shell.options import DRY_RUN, output_options, width_of_terminal
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import calling_aws
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import ControllerError, GiveUp, Misconfigured

if TYPE_CHECKING:
    from dyntrain.controller.contract.messages import ClusterPolicy
    from dyntrain.controller.loops.ports import Ports

_MAX_INSTANCES_SHOWN = 5


@click.group(epilog="Examples:\n\n\b\n  dyntrain cluster create demo --group demo-workers\n  dyntrain cluster list")
def cluster() -> None:  # `dyntrain cluster`
    """Register, list, show, restart and delete clusters."""


@cluster.command(
    epilog="Examples:\n\n\b\n  dyntrain cluster create demo --group demo-workers --min-workers 2\n"
    "  dyntrain cluster create --config policy.json --set boundary=segment --replace"
)
@click.argument("name", required=False)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="JSON file with the policy; options below overrule it.",
)
@click.option(
    "--group", "groups", multiple=True, help="An Auto Scaling group of the cluster; may be given several times."
)
@click.option("--min-workers", type=int)
@click.option("--max-workers", type=int)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=JSON",
    help="Any other field of the policy, such as terminate_orphans=true.",
)
@click.option("--replace", is_flag=True, help="Replace the policy that is there.")
@click.option("--own-mxnet", is_flag=True, help="The nodes have an MXNet that was built for their GPUs.")
def create(  # `dyntrain cluster create`
    name: str | None,
    config: str | None,
    groups: tuple[str, ...],
    min_workers: int | None,
    max_workers: int | None,
    settings: tuple[str, ...],
    replace: bool,
    own_mxnet: bool,
) -> None:
    """Register the cluster NAME by writing the cluster's policy to SSM. If the policy is invalid, the command names the
    wrong fields and writes nothing.
    """
    with calling_aws("asking AWS"):
        from dyntrain.controller.cli.changing.policies import checked_policy, parsed_policy, training_problem
        from dyntrain.controller.cli.rehearsal.recorded import text_of

        policy_fields: dict[str, Any] = parsed_policy(text_of(Path(config)), config) if config else {}
        option_fields = {
            "cluster": name,
            "groups": list(groups) or None,
            "min_workers": min_workers,
            "max_workers": max_workers,
        }
        policy_fields.update({field: value for field, value in option_fields.items() if value is not None})
        policy_fields.update(_parsed_setting(text) for text in settings)
        checked_policy(policy_fields)  # before the first call of AWS
        stage = stage_of_command()
        policy_fields.setdefault("stage", stage.name)
        policy = checked_policy(policy_fields)
        ports = connect_to_stage(stage).ports
        if not own_mxnet and (problem := training_problem(_instance_types(ports, policy))):
            raise GiveUp(f"{problem}; or give --own-mxnet")
        say_where(f"cluster {policy.cluster}, stage {policy.stage}")
        if not ports.parameters.put_policy(policy.cluster, policy.model_dump_json(), overwrite=replace):
            raise GiveUp(
                f"the cluster {policy.cluster!r} is registered already; give --replace to overwrite its policy"
            )
        group_warnings = _group_warnings(ports, policy)
    click.echo(f"{policy.cluster} is registered; the controller knows it within 30 seconds")
    click.echo("`dyntrain check -- python train.py` tells, on this machine, whether a script trains as in one process")
    for warning in group_warnings:
        click.echo(f"Warning: {warning}", err=True)


def _instance_types(ports: Ports, policy: ClusterPolicy) -> set[str]:
    """The instance types of the policy's pool and of the instances in the policy's Auto Scaling groups. If the groups
    cannot be read, the result contains only the pool's type.
    """
    pool_types = {policy.pool.instance_type} if policy.pool is not None else set()
    try:
        member_ids = [member.instance for member in ports.groups.members(policy.groups)] if policy.groups else []
        return (
            pool_types | {instance.type for instance in ports.instances.by_id(member_ids)} if member_ids else pool_types
        )
    except ControllerError:
        return pool_types  # _group_warnings reports the error


def _group_warnings(ports: Ports, policy: ClusterPolicy) -> list[str]:
    """Warnings about the policy's Auto Scaling groups that the controller has no IAM permission to change."""
    from dyntrain.controller.contract.messages import OWNER_TAG

    try:
        owners_by_group = ports.groups.tagged(OWNER_TAG) if policy.groups else {}
    except ControllerError as error:
        return [f"the Auto Scaling groups could not be read: {error}"]
    unowned_groups = [group for group in policy.groups if owners_by_group.get(group) != policy.cluster]
    return [
        f"there is no group {group} with the tag {OWNER_TAG}={policy.cluster}; without the tag the controller may "
        "not change a group"
        for group in unowned_groups
    ]


@cluster.command(epilog="Examples:\n\n\b\n  dyntrain cluster template > cluster.yaml")
def template() -> None:  # `dyntrain cluster template`
    """Print the CloudFormation template of a cluster: network, shared volume, groups, launch templates, parameters."""
    click.echo(
        resources.files("dyntrain.node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8"),
        nl=False,
    )


@cluster.command(name="list", epilog="Examples:\n\n\b\n  dyntrain cluster list\n  dyntrain cluster list --output wide")
@output_options(
    '{"clusters": {name: policy}, "invalid": {name: problem}}',
    "as many columns as the terminal has room for",
    "with stage, boundary and pool",
)
def list_clusters(output: str) -> None:  # `dyntrain cluster list`
    """List all registered clusters. A cluster with an invalid policy is listed with the error."""
    with calling_aws("asking AWS"):
        registry = connect_to_stage().registry
        policies, problems_by_cluster = registry.all(), registry.problems()
    if output == "json":
        click.echo(
            json.dumps(
                {
                    "clusters": {name: policy.model_dump(mode="json") for name, policy in policies.items()},
                    "invalid": problems_by_cluster,
                }
            )
        )
        return
    if not policies and not problems_by_cluster:
        click.echo("no cluster is registered")
        return
    wide = output == "wide"
    for line in cluster_table(policies, problems_by_cluster, None if wide else width_of_terminal(), wide=wide):
        click.echo(line)


def cluster_table(
    policies: Mapping[str, ClusterPolicy], problems: Mapping[str, str], width: int | None, *, wide: bool
) -> list[str]:
    from dyntrain.controller.cli.text.tables import Column, table

    columns = [Column("cluster", 0), Column("workers", 2), Column("groups", 1, words=True)]
    wide_titles = ["stage", "boundary", "pool"] if wide else []
    rows = []
    for name, policy in sorted(policies.items()):
        pool_text = f"{policy.pool.min} to {policy.pool.max} {policy.pool.instance_type}" if policy.pool else "-"
        wide_cells = [policy.stage or "-", policy.boundary, pool_text] if wide else []
        workers_text = f"{policy.min_workers} to {policy.max_workers}"
        rows.append([name, workers_text, ", ".join(policy.groups) or "none", *wide_cells])
    for name, problem in sorted(problems.items()):
        rows.append([name, "INVALID", problem, *("-" for _ in wide_titles)])
    printable_rows = [[printable(cell) for cell in row] for row in rows]
    return table([*columns, *(Column(title, 3) for title in wide_titles)], printable_rows, width)


@cluster.command(epilog="Examples:\n\n\b\n  dyntrain cluster show demo --json > policy.json")
@click.argument("name", type=CLUSTER)
@output_options(
    "one object, which `cluster create --config` takes", "a field a line", "with its default and what it is"
)
def show(name: str, output: str) -> None:  # `dyntrain cluster show`
    """Show all fields of the cluster NAME's policy, including fields with default values."""
    with calling_aws("asking AWS"):
        registry = connect_to_stage().registry
        policy = registry.policy(name)
        if policy is None:
            problem = registry.problems().get(name)
            raise GiveUp(unmanaged_message(name, problem) if problem else f"no cluster {name!r} is registered")
        policy_fields = policy.model_dump(mode="json")
    if output == "json":
        click.echo(json.dumps(policy_fields))
        return
    for line in (
        policy_table(policy)
        if output == "wide"
        else [f"{name}: {json.dumps(policy_fields[name])}" for name in policy_fields]
    ):
        click.echo(printable(line))


def policy_table(policy: ClusterPolicy) -> list[str]:
    """The rows of a table of the policy's fields, each with value, default and description."""
    from dyntrain.controller.cli.text.tables import Column, table

    field_values, default_values = (
        policy.model_dump(mode="json"),
        type(policy)(cluster=policy.cluster).model_dump(mode="json"),
    )
    model_fields = type(policy).model_fields
    rows = [
        [
            field,
            json.dumps(value),
            "" if field == "cluster" else json.dumps(default_values[field]),
            model_fields[field].description or "",
        ]
        for field, value in field_values.items()
    ]
    return table([Column("field", 0), Column("value", 0), Column("default", 0), Column("what it is", 0)], rows, None)


@cluster.command(epilog="Examples:\n\n\b\n  dyntrain cluster delete demo\n  dyntrain cluster delete demo --force")
@click.argument("name", type=CLUSTER)
@click.option("--force", is_flag=True, help="Although it still has nodes; they are left running as they are.")
def delete(name: str, force: bool) -> None:  # `dyntrain cluster delete`
    """Delete the SSM parameters of the cluster NAME. The cluster's instances are not changed."""
    with calling_aws("asking AWS"):
        from dyntrain.controller.contract.messages import CLUSTER_NAME

        if not re.fullmatch(CLUSTER_NAME, name):
            raise Misconfigured(f"{name!r} cannot be the name of a cluster")
        ports = connect_to_stage().ports
        existing_instances = sorted(
            instance for instance, node in ports.nodes.of_cluster(name).items() if not node.facts.terminated
        )
        if existing_instances and not force:
            shown_names = ", ".join(existing_instances[:_MAX_INSTANCES_SHOWN]) + (
                ", ..." if len(existing_instances) > _MAX_INSTANCES_SHOWN else ""
            )
            raise GiveUp(
                f"{name} still has {len(existing_instances)} instances ({shown_names}); remove them first, or give "
                "--force to leave them running"
            )
        say_where(f"cluster {name}")
        deleted_parameters = ports.parameters.delete(name)
        if not deleted_parameters:
            raise GiveUp(f"no cluster {name!r} is registered")
    click.echo(f"deleted {', '.join(deleted_parameters)}")


@cluster.command(epilog="Examples:\n\n\b\n  dyntrain cluster restart demo\n  dyntrain cluster restart demo --dry-run")
@click.argument("name", type=CLUSTER)
@DRY_RUN
def restart(name: str, dry_run: bool) -> None:  # `dyntrain cluster restart`
    """After the end of the cluster NAME's job, start the job again from the first epoch.

    Running base nodes are rebooted, and stopped base nodes are started.
    """
    with calling_aws("asking AWS"):
        from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, restart_request

        stage_connection = connect_to_stage()
        result_text = carry_out_unless_dry_run(
            stage_connection.ports, restart_request(stage_connection, name), dry_run, say_where
        )
    click.echo(result_text)


def _parsed_setting(text: str) -> tuple[str, Any]:
    field, equals_sign, value_text = text.partition("=")
    if not equals_sign:
        raise Misconfigured(f"--set {text!r} has not the form FIELD=JSON")
    try:
        return field, json.loads(value_text)
    except ValueError:
        return field, value_text
