"""Shell completion of cluster names and instance ids from what is deployed.

eval "$(_DYNTRAIN_COMPLETE=bash_source dyntrain)"

Errors are not shown: a shell that waits or complains is worse than one that does not complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem
from dyntrain.controller.cli.shell.aws_settings import aws_settings, changed
from dyntrain.controller.cli.shell.connection import connect, stage_of_command
from dyntrain.controller.contract.errors import ControllerError

Choices = Sequence[tuple[str, str]]  # (what to type, what it is)


class Known(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A text parameter that the shell completes by `look`."""

    def __init__(self, name: str, look: Callable[[], Choices]) -> None:
        self.name, self._look = name, look

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        line = ctx.find_root().params  # no command runs, so apply the typed options here
        settings = aws_settings(os.environ, line.get("region"), line.get("profile"))
        try:
            with ctx.scope(cleanup=False), changed(os.environ, settings):
                choices = self._look()
        except (ControllerError, OSError):
            return []
        return [CompletionItem(text, help=about) for text, about in choices if text.startswith(incomplete)]


def _clusters() -> Choices:
    registry = connect().registry
    return [
        (name, f"{policy.min_workers} to {policy.max_workers} workers")
        for name, policy in sorted(registry.all().items())
    ]


def _instances() -> Choices:
    from dyntrain.controller.cli.answers.announced import announced_standing
    from dyntrain.controller.cli.answers.query import snapshot

    ports, registry, elastic = connect()
    return [
        (node.view.instance, f"{cluster}: {announced_standing(node).status}")
        for cluster in sorted(registry.all())
        for node in snapshot(ports, registry, cluster, elastic).decision.nodes
        if announced_standing(node).status != "GONE"
    ]


def _clusters_and_jobs() -> Choices:
    import time

    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.jobs import job_ports

    stored = job_ports(Clients(attempts=2), stage_of_command().table, time.time).records.all()
    return [*_clusters(), *sorted((one.record.name, f"job, {one.record.state}") for one in stored)]


CLUSTER = Known("cluster", _clusters)
CLUSTER_OR_JOB = Known("name", _clusters_and_jobs)
INSTANCE = Known("instance", _instances)
