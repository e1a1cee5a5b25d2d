"""Where a command changes something is said before it does.

What would break for a user: a worker that is launched in the wrong account, by a command that says that all is well.
"""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from dyntrain.controller.adapters.account import account_and_region
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.cli.main import main
from moto_account import Run

ACCOUNT = "account 123456789012, region eu-west-3"
CHANGING = {
    "add",
    "base replace",
    "cluster create",
    "cluster delete",
    "cluster restart",
    "dashboard",
    "job resubmit",
    "job stop",
    "job submit",
    "remove",
    "scale",
}
# of this machine alone, or of none
ELSEWHERE = {
    "check",
    "cluster template",
    "generate-trainer",
    "index",
    "job template",
    "launch",
    "local chaos",
    "local demo",
    "local up",
    "replay",
}
READING = {
    "cluster list",
    "cluster show",
    "cost",
    "doctor",
    "events",
    "explain",
    "job list",
    "job logs",
    "job status",
    "logs",
    "model",
    "pool plan",
    "report",
    "status",
    "tensorboard",
}


def names(group: click.Group, before: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from names(command, f"{before}{name} ")
        else:
            yield before + name


def test_each_command_is_known_to_change_something_or_not() -> None:
    """A new one belongs into one of the lists; what changes something says where, by `say_where`."""
    assert sorted(names(main)) == sorted(CHANGING | ELSEWHERE | READING)


@pytest.mark.parametrize("typed", [("cluster", "create", "demo"), ("cluster", "delete", "demo")])
def test_account_region_and_cluster_are_said_before_the_change(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    if typed[1] == "delete":
        assert run("cluster", "create", "demo").exit_code == 0
    done = run(*typed)
    assert done.stderr.splitlines()[0].startswith(ACCOUNT)
    assert "cluster demo" in done.stderr.splitlines()[0]
    assert ACCOUNT not in done.stdout


def test_nothing_is_said_of_a_place_where_nothing_is_changed(run: Run) -> None:
    assert ACCOUNT not in run("cluster", "list").output


def test_an_endpoint_of_ones_own_is_named(clients: Clients, endpoint: str) -> None:
    """Whoever tries something in an embedded cloud sees that it is one."""
    assert account_and_region(clients) == f"{ACCOUNT}, at {endpoint}"


def test_an_account_that_cannot_be_asked_for_holds_nobody_up(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    line = account_and_region(Clients(attempts=1))
    assert line.startswith("account unknown (EndpointConnectionError), region eu-west-3")
