"""`dyntrain`: what a cluster is doing and why; and the embedded cloud."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from controller import cli_base, cli_clusters, cli_replay, pool_cli
from controller.cli_connection import connect, moment, one_clear_line
from controller.contract import INSTANCE_ID
from controller.errors import Misconfigured
from controller.reading import cluster_of_instance, explanation, snapshot, summary

WATCH_SECONDS = 1.0
COLUMNS = ("instance", "role", "status", "reason", "generation", "rank", "since")


class Commands(click.Group):
    """Loads `local` only when it is asked for: it needs the extra of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "local"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _local() if cmd_name == "local" else super().get_command(ctx, cmd_name)


def _local() -> click.Command:
    try:
        import moto  # noqa: F401
    except ImportError:

        @click.command("local", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
        def unavailable() -> None:
            """Run the embedded cloud (needs the extra `local`)."""
            raise click.ClickException("the embedded cloud needs moto, which is not installed: install dyntrain[local]")

        return unavailable
    from controller.local.command import local

    command: click.Command = local
    return command


@click.group(cls=Commands)
def main() -> None:
    """Elastic training on EC2: what the clusters are doing, and why."""


for command in (cli_base.base, cli_clusters.cluster, cli_clusters.events, cli_replay.replay, pool_cli.pool):
    main.add_command(command)


@main.command("launch", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(arguments: tuple[str, ...]) -> None:
    """Train without a cloud, on hosts that you name (--help lists the flags)."""
    from training.launch import main as launch_job

    sys.exit(launch_job(arguments))


@main.command()
@click.option("--cluster", help="Only this cluster; default: all that are registered.")
@click.option("--watch", is_flag=True, help="Show it again every second until interrupted.")
@click.option("--json", "as_json", is_flag=True, help='Print {"clusters": [...]}; one line each time with --watch.')
@click.option("--gone", is_flag=True, help="Also list terminated nodes.")
def status(cluster: str | None, watch: bool, as_json: bool, gone: bool) -> None:
    """Nodes with status, reason, generation, rank and since when; the job with epoch, step, workers and samples/s."""
    with one_clear_line():
        ports, registry, suffix = connect()

        def read() -> list[dict[str, Any]]:
            names = [cluster] if cluster else sorted(registry.all())
            return [summary(snapshot(ports, registry, name, suffix), gone=gone) for name in names]

        if as_json:
            _json_status(read, watch)
        elif watch and sys.stdout.isatty():
            _live_status(read)
        else:
            _plain_status(read, watch)


@main.command()
@click.argument("instance")
@click.option("--json", "as_json", is_flag=True)
def explain(instance: str, as_json: bool) -> None:
    """Why an instance has its status: the reason and every fact behind it."""
    with one_clear_line():
        if not re.fullmatch(INSTANCE_ID, instance):
            raise Misconfigured(f"{instance!r} is no instance id")
        ports, registry, suffix = connect()
        cluster = cluster_of_instance(ports, registry, instance)
        found = explanation(snapshot(ports, registry, cluster, suffix), instance)
    click.echo(json.dumps(found, indent=None if as_json else 2) if as_json else _explained(found))


def _json_status(read: Callable[[], list[dict[str, Any]]], watch: bool) -> None:
    while True:
        click.echo(json.dumps({"clusters": read()}))
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


def _plain_status(read: Callable[[], list[dict[str, Any]]], watch: bool) -> None:
    shown = None
    while True:
        clusters = read()
        text = "\n\n".join(_cluster_text(cluster) for cluster in clusters) or "no cluster is registered"
        if sys.stdout.isatty() and not watch and clusters and _rich_print(clusters):
            return
        if text != shown:
            click.echo(text)
        shown = text
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


def _rich_print(clusters: list[dict[str, Any]]) -> bool:
    try:
        from rich.console import Console
    except ImportError:
        return False
    Console().print(_tables(clusters))
    return True


def _live_status(read: Callable[[], list[dict[str, Any]]]) -> None:
    try:
        from rich.live import Live
    except ImportError:
        _plain_status(read, watch=True)
        return
    with Live(_tables(read()), auto_refresh=False) as live:
        while True:
            live.update(_tables(read()), refresh=True)
            time.sleep(WATCH_SECONDS)


def _tables(clusters: list[dict[str, Any]]) -> Any:
    from rich.console import Group
    from rich.table import Table

    shown = []
    for cluster in clusters:
        table = Table(title=_headline(cluster), title_justify="left")
        for column in COLUMNS:
            table.add_column(column)
        for row in _rows(cluster):
            table.add_row(*row)
        shown.append(table)
    return Group(*shown)


def _cluster_text(cluster: dict[str, Any]) -> str:
    rows = [COLUMNS, *_rows(cluster)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([_headline(cluster), *lines])


def _rows(cluster: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            node["instance"],
            ("master" if node["base"] and node["master"] else "base" if node["base"] else "elastic")
            + (", coordinator" if node["instance"] == cluster["target"]["coordinator"] else ""),
            node["status"],
            f"{node['sentence']}: {node['detail'].strip().splitlines()[-1]}" if node["detail"].strip() else node["sentence"],
            _shown(node["generation"]),
            _shown(node["rank"]),
            moment(node["since"]),
        )
        for node in cluster["nodes"]
    ]


def _headline(cluster: dict[str, Any]) -> str:
    job = cluster["job"]
    if job is None:
        return f"{cluster['cluster']}: no job has been heard of; target revision {cluster['target']['revision']}"
    paused = cluster["target"]["term"] and cluster["target"]["coordinator"] is None and not job["alive"]
    if paused and job["state"] not in ("finished", "failed"):
        return f"{cluster['cluster']}: job {job['job']} paused at epoch {job['epoch']}/{job['epochs']}: no base node is left to run the coordinator"
    heard = "" if job["alive"] or job["state"] in ("finished", "failed") else f" (silent for {job['heard_seconds_ago']:.0f} s)"
    return (
        f"{cluster['cluster']}: job {job['job']} {job['state']}{heard}, epoch {job['epoch']}/{job['epochs']}, step {job['step']}, "
        f"{job['workers']} workers, {job['samples_per_second']:.0f} samples/s, generation {job['generation']}, "
        f"target revision {cluster['target']['revision']}"
    )


def _explained(found: dict[str, Any]) -> str:
    lines = [f"{found['instance']} of {found['cluster']}: {found['status']}", f"  reason: {found['reason']}, {found['sentence']}"]
    if found["detail"]:
        lines += ["  detail:", *(f"    {line}" for line in found["detail"].splitlines())]
    lines.append(f"  since: {moment(found['since'])}")
    lines.append(f"  what would change it: {found['would_change']}")
    if found["next_change"] is not None:
        lines.append(f"  may change by itself at: {moment(found['next_change'])}")
    if found["pending_actions"]:
        lines.append(f"  to be done: {', '.join(found['pending_actions'])}")
    lines += ["  as it stands:", *(f"    {key}: {value}" for key, value in found["effective"].items())]
    lines.append("  what is known, and from where:")
    lines += [f"    {moment(origin['at'])}  {origin['fact']}: {origin['says']}  [{origin['where']}]" for origin in found["origins"]]
    if found["passed_over"]:
        lines += ["  passed over:", *(f"    {line}" for line in found["passed_over"])]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


if __name__ == "__main__":
    main()
