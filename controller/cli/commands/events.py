"""`dyntrain events`: print the audit trail of status changes and actions."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.completion import INSTANCE
from dyntrain.controller.cli.shell.connection import connect_to_stage
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.options import cluster_argument, output_options
from dyntrain.controller.cli.shell.since import parse_since
from dyntrain.controller.cli.shell.waiting import follow as go_on
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.words import moment, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dyntrain.controller.loops.ports import TrailEntry

LATE_SECONDS = 10.0  # a Lambda function may write its entry of the audit trail this late


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain events --since 2h\n  dyntrain events --cluster demo --follow\n"
    "  dyntrain events --instance i-0123456789abcdef0 --since 7d --json"
)
@cluster_argument
@click.option(
    "--since",
    default="1h",
    show_default=True,
    help="A span such as 30m, 2h or 7d, or an ISO 8601 time (UTC unless it says otherwise).",
)
@click.option("--instance", type=INSTANCE, help="Only what concerns this instance.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@output_options("one object a line", "one entry a line", "with every field, also those that are long")
def events(cluster: str | None, since: str, instance: str | None, follow: bool, output: str) -> None:
    """Print the audit trail: every status change and every action of the last 30 days."""
    with errors_on_one_line():
        start_time = parse_since(since, time.time())
        check_instance_ids([instance] if instance is not None else [])
        with waiting("reading the audit trail"):
            ports, registry, _ = connect_to_stage()
            from dyntrain.controller.cli.answers.query import policy_of

            if cluster is not None:
                policy_of(registry, cluster)

            def read_entries(begin: float) -> list[StoredEntry]:
                cluster_names = [cluster] if cluster else sorted(registry.all())
                entries = [(name, entry) for name in cluster_names for entry in ports.clusters.trail(name, begin)]
                matching_entries = (pair for pair in entries if instance is None or pair[1].entry.instance == instance)
                return sorted(matching_entries, key=lambda pair: pair[1].at)

            trail_reader = TrailReader(read_entries, start_time)
            first_entries = trail_reader.next()
        entry_count = _print_entries(first_entries, output)
        if not entry_count and output != "json":
            click.echo(f"nothing was changed or done since {since}; --since 7d looks further back", err=True)
        if follow:
            go_on(lambda: _print_entries(trail_reader.next(), output))


StoredEntry = tuple[str, "TrailEntry"]  # the cluster's name and an entry of its audit trail


class TrailReader:
    """Read new entries of the audit trail. Each entry is returned only once, although entries may be written late and
    out of order.
    """

    def __init__(self, read: Callable[[float], list[StoredEntry]], start: float) -> None:
        self._read, self._start = read, start
        self._shown: list[StoredEntry] = []

    def next(self) -> list[StoredEntry]:
        entries = self._read(self._start)
        new_entries = [stored_entry for stored_entry in entries if stored_entry not in self._shown]
        if entries:
            self._start = max(self._start, entries[-1][1].at - LATE_SECONDS)
        self._shown = [stored_entry for stored_entry in entries if stored_entry[1].at >= self._start]
        return new_entries


def _print_entries(entries: Iterable[StoredEntry], output: str) -> int:
    entry_count = 0
    for entry_count, (cluster, entry) in enumerate(entries, 1):  # noqa: B007
        entry_fields = {"at": entry.at, "cluster": cluster, **entry.entry.fields()}
        click.echo(json.dumps(entry_fields) if output == "json" else trail_line(cluster, entry, wide=output == "wide"))
    return entry_count


def trail_line(cluster: str, entry: TrailEntry, *, wide: bool = False) -> str:
    from dyntrain.controller.cli.text.trail import entry_text

    entry_parts = entry_text(entry.entry, wide=wide)
    entry_kind = "" if entry_parts.kind == "status" else entry_parts.kind
    line_parts = [
        moment(entry.at),
        cluster,
        entry_kind,
        entry_parts.instance,
        entry_parts.what,
        f"({entry_parts.detail})" if entry_parts.detail else "",
    ]
    return printable("  ".join(filter(None, line_parts)))
