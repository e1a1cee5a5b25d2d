"""Shell completion of cluster names, job names and instance ids that the user types.

Errors of the completion are not shown, because a message would disturb the line that the user types.

To enable completion in bash, run this line:
eval "$(_DYNTRAIN_COMPLETE=bash_source dyntrain)"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem
from dyntrain.controller.cli.shell.aws_settings import aws_settings, changed_environment
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.contract.errors import ControllerError

Choices = Sequence[tuple[str, str]]  # pairs of completion and description


class CompletedText(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A text parameter of a command, for which the shell offers the choices that `list_choices` returns."""

    def __init__(self, name: str, list_choices: Callable[[], Choices]) -> None:
        self.name, self._list_choices = name, list_choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        root_options = ctx.find_root().params  # applied here, because no command runs
        settings = aws_settings(os.environ, root_options.get("region"), root_options.get("profile"))
        try:
            with ctx.scope(cleanup=False), changed_environment(os.environ, settings):
                choices = self._list_choices()
        except (ControllerError, OSError):
            return []
        return [CompletionItem(text, help=description) for text, description in choices if text.startswith(incomplete)]


def _cluster_choices() -> Choices:
    registry = connect_to_stage().registry
    return [
        (cluster_name, f"{policy.min_workers} to {policy.max_workers} workers")
        for cluster_name, policy in sorted(registry.all().items())
    ]


def _instance_choices() -> Choices:
    from dyntrain.controller.cli.answers.announced import announced_standing
    from dyntrain.controller.cli.answers.query import snapshot

    ports, registry, elastic_tag = connect_to_stage()
    return [
        (node.view.instance, f"{cluster}: {announced_standing(node).status}")
        for cluster in sorted(registry.all())
        for node in snapshot(ports, registry, cluster, elastic_tag).decision.nodes
        if announced_standing(node).status != "GONE"
    ]


def _cluster_and_job_choices() -> Choices:
    import time

    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.jobs import job_ports

    stored_jobs = job_ports(Clients(attempts=2), stage_of_command().table, time.time).records.all()
    return [*_cluster_choices(), *sorted((job.record.name, f"job, {job.record.state}") for job in stored_jobs)]


CLUSTER = CompletedText("cluster", _cluster_choices)
CLUSTER_OR_JOB = CompletedText("name", _cluster_and_job_choices)
INSTANCE = CompletedText("instance", _instance_choices)
