"""`dyntrain replay`: show the controller's reaction to recorded events. A replay reads and changes nothing in AWS."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.options import output_options
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import Misconfigured

if TYPE_CHECKING:
    from dyntrain.controller.cli.rehearsal.recorded import Record
    from dyntrain.controller.contract.messages import ClusterPolicy

DEFAULT_CLUSTER = "demo"


class _TimeParameter(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "time"  # of the type, in error messages

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from dyntrain.controller.core.incoming.payloads import Time
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(Time).validate_python(float(value) if value.replace(".", "", 1).isdigit() else value)
        except ValidationError:
            self.fail(f"{value!r} is neither seconds since the epoch nor an ISO 8601 time", param, ctx)


TIME_PARAMETER = _TimeParameter()


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain replay recorded/\n  dyntrain replay events.jsonl --cluster demo --shuffle 1"
)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--cluster",
    help=f"Whose nodes to show; with defaults for a policy, and the group NAME-workers.  [default: {DEFAULT_CLUSTER}]",
)
@click.option("--cluster-config", help="File with the cluster's policy, as `dyntrain cluster create` takes it.")
@click.option(
    "--now", type=TIME_PARAMETER, help="ISO 8601 or seconds since the epoch.  [default: the latest event's time]"
)
@click.option(
    "--shuffle",
    type=int,
    metavar="SEED",
    help="Also replay permutations with duplicates; exit code 1 if one ends differently.",
)
@click.option("--times", type=click.IntRange(min=1), default=10, show_default=True, help="How many permutations.")
@output_options("one object a line: each event, then the outcome", "an event a line, then the outcome", "the same")
@click.pass_context
def replay(  # `dyntrain replay`
    ctx: click.Context,
    files: tuple[str, ...],
    cluster: str | None,
    cluster_config: str | None,
    now: float | None,
    shuffle: int | None,
    times: int,
    output: str,
) -> None:
    """Replay recorded EventBridge events through the controller's own code in memory. FILES are files or folders with
    JSON or JSON lines.

    FILES may also contain the unchanged messages of a dead-letter queue. The exit code is 2 for an unreadable path. The
    exit code is 1 if the files contain no event, or if the outcome depends on the order of the events.
    """
    with errors_on_one_line(), _without_logging():
        from dyntrain.controller.cli.rehearsal.recorded import Unreadable, files_of, records_of
        from dyntrain.controller.cli.rehearsal.rehearsal import differing_permutations
        from dyntrain.controller.cli.rehearsal.rehearsal import replay_records as run
        from dyntrain.controller.contract.settings import Settings
        from dyntrain.controller.core.incoming.event_rules import matching_handlers as matching_rules

        settings = Settings.of(os.environ)
        try:
            records = [record for file in files_of(files) for record in records_of(file)]
            policy = _replay_policy(cluster, cluster_config)
        except Unreadable as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)
        replay_time = (
            now
            if now is not None
            else max((record.time for record in records if record.time is not None), default=time.time())
        )
        match_event = partial(matching_rules, settings.elastic)
        replay_result = run(records, match_event, policy, settings.elastic, replay_time)
        permutation_numbers = (
            []
            if shuffle is None
            else differing_permutations(records, match_event, policy, settings.elastic, replay_time, shuffle, times)
        )
    if output == "json":
        output_lines = _json_lines(replay_result.events, replay_result.summary)
    else:
        output_lines = map(printable, _text_lines(records, replay_result.events, replay_result.summary))
    for line in output_lines:
        click.echo(line)
    if all(record.event is None for record in records):
        click.echo("Error: the files contain no event", err=True)
        ctx.exit(1)
    if permutation_numbers:
        click.echo(
            f"Error: {len(permutation_numbers)} of {times} permutations of seed {shuffle} end with other statuses or "
            f"members: {permutation_numbers[:10]}",
            err=True,
        )
        ctx.exit(1)


@contextmanager
def _without_logging() -> Iterator[None]:
    """A context in which the event handlers write no log lines, since the printed outcome contains the same facts."""
    old_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(old_level)


def _replay_policy(cluster: str | None, config: str | None) -> ClusterPolicy:
    from dyntrain.controller.cli.changing.policies import checked_policy, parsed_policy
    from dyntrain.controller.cli.rehearsal.recorded import text_of

    cluster_name = DEFAULT_CLUSTER if cluster is None else cluster
    if config is None:
        return checked_policy({"cluster": cluster_name, "groups": [f"{cluster_name}-workers"]})
    policy_fields = parsed_policy(text_of(Path(config)), config)
    if cluster is not None and policy_fields.setdefault("cluster", cluster) != cluster:
        raise Misconfigured(f"{config} contains the policy of {policy_fields['cluster']!r}, not of {cluster!r}")
    return checked_policy(policy_fields)


def _json_lines(events: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[str]:
    yield from (json.dumps(event) for event in events)
    yield json.dumps(summary)


def _text_lines(
    records: Sequence[Record], events: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> Iterator[str]:
    for record, event in zip(records, events, strict=True):
        event_type = str(record.event.get("detail-type", "-")) if record.event is not None else "-"
        handler_names = ", ".join(event["matched"]) or "no rule"
        yield "  ".join(
            column
            for column in (
                event["file"],
                event_type,
                handler_names,
                event["outcome"],
                event["instance"],
                event["reason"],
            )
            if column
        )
    yield ""
    for instance, node in summary["nodes"].items():
        yield f"{instance}  {node['status']}  {node['reason']}"
    member_names = " ".join(summary["target"]["members"]) or "nobody"
    yield f"target revision {summary['target']['revision']}: {member_names}"
    for action in summary["actions"]:
        yield "would do: " + " ".join(
            f"{key}={value}" if key != "action" else str(value) for key, value in action.items()
        )
