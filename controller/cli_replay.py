"""`dyntrain replay`: what the controller makes of recorded events, without touching anything."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from controller.cli_connection import one_clear_line
from controller.contract import ClusterPolicy
from controller.errors import Misconfigured
from controller.payloads import Time
from controller.recorded import Record, Unreadable, files_of, records_of, text_of
from controller.settings import Settings

DEFAULT_CLUSTER = "demo"


class _Moment(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return TypeAdapter(Time).validate_python(float(value) if value.replace(".", "", 1).isdigit() else value)
        except ValidationError:
            self.fail(f"{value!r} is neither seconds since the epoch nor an ISO 8601 time", param, ctx)


MOMENT = _Moment()


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--cluster", help=f"Whose nodes to show; with defaults for a policy, and the group NAME-workers.  [default: {DEFAULT_CLUSTER}]")
@click.option("--cluster-config", help="File with the cluster's policy, as `dyntrain cluster create` takes it.")
@click.option("--now", type=MOMENT, help="ISO 8601 or seconds since the epoch.  [default: the latest event's time]")
@click.option("--shuffle", type=int, metavar="SEED", help="Also replay permutations with duplicates; exit code 1 if one ends differently.")
@click.option("--times", type=click.IntRange(min=1), default=10, show_default=True, help="How many permutations.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: each event, then the outcome.")
@click.pass_context
def replay(
    ctx: click.Context,
    files: tuple[str, ...],
    cluster: str | None,
    cluster_config: str | None,
    now: float | None,
    shuffle: int | None,
    times: int,
    as_json: bool,
) -> None:
    """Feed recorded EventBridge payloads (FILES or folders; JSON or JSON lines) through the real rules and decisions, in memory.

    Exit code 2 when a path cannot be read, 1 when a permutation ends with other statuses or members, else 0.
    """
    with one_clear_line(), _quietly():
        from controller.replay import differing
        from controller.replay import replay as run

        settings = Settings.of(os.environ)
        try:
            records = [record for file in files_of(files) for record in records_of(file)]
            policy = _policy(cluster, cluster_config)
        except Unreadable as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)
        at = now if now is not None else max((record.time for record in records if record.time is not None), default=time.time())
        matching = rules_of_the_app()
        found = run(records, matching, policy, settings.elastic_suffix, at)
        odd = [] if shuffle is None else differing(records, matching, policy, settings.elastic_suffix, at, shuffle, times)
    for line in _json_lines(found.events, found.summary) if as_json else _text_lines(records, found.events, found.summary):
        click.echo(line)
    if odd:
        click.echo(f"Error: {len(odd)} of {times} permutations of seed {shuffle} end with other statuses or members: {odd[:10]}", err=True)
        ctx.exit(1)


def rules_of_the_app() -> Callable[[Mapping[str, Any]], list[str]]:
    """Names of the handlers whose rule in app.py matches an event. Raises Misconfigured without moto, which evaluates the patterns."""
    try:
        from controller.local.lambda_runtime import describe, load
        from controller.local.rules import matches, parse_rules
    except ImportError as error:
        raise Misconfigured(f"replay evaluates the rules with moto, which is not installed ({error.name}): install dyntrain[local]") from error
    rules = parse_rules(describe(load("app:app")))

    def matching(event: Mapping[str, Any]) -> list[str]:
        found = []
        for rule in rules.patterns:
            try:
                hit = matches(rule.pattern, dict(event))
            except (AttributeError, KeyError, TypeError, ValueError):  # an odd payload, where the pattern expects an object
                hit = False
            if hit and rule.function not in found:
                found.append(rule.function)
        return found

    return matching


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the log lines of the handlers: the outcome tells all of it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _policy(cluster: str | None, config: str | None) -> ClusterPolicy:
    name = DEFAULT_CLUSTER if cluster is None else cluster
    if config is None:
        return checked_policy({"cluster": name, "groups": [f"{name}-workers"]})
    fields = parsed_policy(text_of(Path(config)), config)
    if cluster is not None and fields.setdefault("cluster", cluster) != cluster:
        raise Misconfigured(f"{config} is the policy of {fields['cluster']!r}, not of {cluster!r}")
    return checked_policy(fields)


def parsed_policy(text: str, source: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise Misconfigured(f"{source} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Misconfigured(f"{source} holds a JSON {type(fields).__name__}; a policy is an object")
    return fields


def checked_policy(fields: Mapping[str, Any]) -> ClusterPolicy:
    """Raises Misconfigured, naming every field that is wrong."""
    try:
        return ClusterPolicy.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, entry['loc'])) or 'policy'}: {entry['msg']}" for entry in error.errors()]
        raise Misconfigured(f"the policy is not valid: {'; '.join(wrong)}") from error


def _json_lines(events: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[str]:
    yield from (json.dumps(event) for event in events)
    yield json.dumps(summary)


def _text_lines(records: Sequence[Record], events: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[str]:
    for record, event in zip(records, events, strict=True):
        kind = str(record.event.get("detail-type", "-")) if record.event is not None else "-"
        handlers = ", ".join(event["matched"]) or "no rule"
        yield "  ".join(part for part in (event["file"], kind, handlers, event["outcome"], event["instance"], event["reason"]) if part)
    yield ""
    for instance, node in summary["nodes"].items():
        yield f"{instance}  {node['status']}  {node['reason']}"
    members = " ".join(summary["target"]["members"]) or "nobody"
    yield f"target revision {summary['target']['revision']}: {members}"
    for action in summary["actions"]:
        yield "would do: " + " ".join(f"{key}={value}" if key != "action" else str(value) for key, value in action.items())
