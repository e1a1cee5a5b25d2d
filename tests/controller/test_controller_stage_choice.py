"""Several controllers in one account: the command line finds the one that is meant, and a cluster has its own."""

from __future__ import annotations

import json
import os

import pytest
from click.shell_completion import ShellComplete
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.ssm import SsmParameters
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.messages import Target, parameter
from moto_account import TABLE, Run, deploy

NODE = "i-0aaaaaaaaaaaaaaa1"
AT = 1_700_000_000.0


def test_commands_find_the_table_of_the_stage_and_ask_which_when_there_are_several(
    clients: Clients, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack's table has a name that CloudFormation made up."""
    monkeypatch.delenv("DYNTRAIN_TABLE")
    nothing = run("status")
    deploy(clients, "prod", TABLE)
    created = run("cluster", "create", "demo", "--group", "demo-workers")
    single = run("status", "--json")
    deploy(clients, "dev", "another-table")
    which, named, other = (
        run("status"),
        run("--stage", "prod", "status", "--json"),
        run("--stage", "dev", "cluster", "list"),
    )
    assert (nothing.exit_code, "no controller is deployed in this account" in nothing.output) == (1, True)
    assert created.exit_code == 0, created.output
    assert [one["cluster"] for one in json.loads(single.output)["clusters"]] == ["demo"]
    assert (which.exit_code, which.output.startswith("Error: several controllers are deployed here (dev, prod)")) == (
        1,
        True,
    )
    assert json.loads(named.output) == json.loads(single.output)
    assert other.output == "no cluster is registered\n", "a cluster of another stage is not this one's"


def test_a_cluster_that_names_no_stage_is_served_by_the_only_controller_and_by_none_of_two(
    clients: Clients, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would publish targets for it in turn, with other members under one revision."""
    monkeypatch.delenv("DYNTRAIN_TABLE")
    clients.ssm().put_parameter(Name="/dyntrain/old/policy", Value='{"cluster": "old"}', Type="String")
    deploy(clients, "prod", TABLE)
    alone = run("cluster", "list").output
    deploy(clients, "dev", "another-table")
    both = [run("--stage", stage, "cluster", "list").output for stage in ("dev", "prod")]
    assert alone.splitlines()[1].split()[:4] == ["old", "1", "to", "64"]
    assert all(
        shown.splitlines()[1].startswith("old      INVALID  stage: several controllers are deployed here (dev, prod)")
        for shown in both
    )


def test_names_are_completed_in_the_region_and_stage_that_stand_on_the_line(
    clients: Clients, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYNTRAIN_TABLE")
    deploy(clients, "prod", TABLE)
    deploy(clients, "dev", "another-table")
    run("--stage", "prod", "cluster", "create", "demo")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    here = ["--region", "eu-west-3"]
    for line, completed in (([*here, "--stage", "prod"], ["demo"]), ([*here, "--stage", "dev"], []), ([], [])):
        completion = ShellComplete(main, {}, "dyntrain", "_DYNTRAIN_COMPLETE")
        items = completion.get_completions([*line, "scale"], "")
        assert [item.value for item in items] == completed
    assert os.environ["AWS_DEFAULT_REGION"] == "sa-east-1"


def test_what_a_stage_publishes_says_whose_it_is(clients: Clients) -> None:
    SsmParameters(clients, "prod").put_target("demo", Target.of(1, (NODE,)), "cluster#demo/target")
    value = clients.ssm().get_parameter(Name=parameter("demo", "target"))["Parameter"]["Value"]
    assert Target.model_validate_json(value).stage == "prod"
