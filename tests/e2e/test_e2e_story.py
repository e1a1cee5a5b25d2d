"""E1: a person with two command lines (aws, dyntrain), a job that trains, and everything in between real but the cloud.

The tests of this module share one cloud and run in order: each begins where the one before left it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from typing import Any

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.controller.local.pace import patient
from dyntrain.training.audit import audit_directory
from dyntrain.training.protocol import channel
from dyntrain.training.protocol.messages import Refused
from dyntrain.training.protocol.node_messages import NodeHello
from local_up import DYNTRAIN, LocalUp
from playwright.sync_api import Page, expect
from pydantic import SecretStr
from websockets.exceptions import ConnectionClosed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
TAG = "demo-aws-dl-cfn-elastic-worker"
LIFE = ["WAITING", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED"]
NOTE_STATUSES = """
    window.noted = {};
    new MutationObserver(() => {
      for (const row of document.querySelectorAll(".nodes .space .row")) {
        const seen = (noted[row.dataset.key] ??= []);
        const status = row.querySelector(".status").dataset.mark;
        if (seen.at(-1) !== status) seen.push(status);
      }
    }).observe(document.querySelector(".nodes .space"), {subtree: true, childList: true, characterData: true});
"""


def added(up: LocalUp, instance: str) -> None:
    up.wait_for(lambda: up.status_tag(instance) == "ADDED", 60, f"{instance} is ADDED")
    up.wait_for(
        lambda: cli_status_tag(up, instance) == "ADDED", 30, f"a person is told that {instance} is ADDED", pause=1.0
    )


def cli_status_tag(up: LocalUp, instance: str) -> str:
    """The status tag as a person asks for it."""
    tags = up.aws(
        "ec2",
        "describe-tags",
        "--filters",
        f"Name=resource-id,Values={instance}",
        "Name=key,Values=elastic_worker_status",
    )["Tags"]
    return str(tags[0]["Value"])


def tags_written(up: LocalUp, instance: str) -> list[str]:
    """The values of the status tag, from the audit trail: each once, though it is written again."""
    lines = done(up, "events", "--instance", instance, "--json").splitlines()
    entries = [json.loads(line) for line in lines]
    values = [entry["value"] for entry in entries if entry["kind"] == "SetStatusTag"]
    return [value for value, before in zip(values, [None, *values], strict=False) if value != before]


def gone(up: LocalUp, instance: str) -> None:
    """Tags are described as they were a moment ago: what is told in the moment of the end need not be the end yet."""
    up.wait_for(lambda: up.state(instance) == "terminated", 60, f"{instance} is terminated")
    up.wait_for(
        lambda: cli_status_tag(up, instance) == "REMOVED",
        30,
        f"a person is told that {instance} was removed",
        pause=1.0,
    )


def new_instance(up: LocalUp, before: set[str]) -> str:
    return str(up.wait_for(lambda: next(iter(up.instances() - before), None), 30, "the group launches an instance"))


def done(up: LocalUp, *arguments: str) -> str:
    """What a command without `aws` says."""
    answer = up.dyntrain(*arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_e1_instances_join_and_leave_by_template_capacity_and_tag(up: LocalUp) -> None:
    up.wait_for(lambda: up.job_events("segment"), 90, "the base nodes train")
    survivors = up.worker_pids()
    assert len(survivors) == 2

    answer = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")
    first = answer["Instances"][0]["InstanceId"]
    added(up, first)
    target = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/target")["Parameter"]["Value"])
    assert first in target["members"]

    before = up.instances()
    assert f"--auto-scaling-group-name {up.group} --desired-capacity 1" in done(up, "add", "demo")
    second = new_instance(up, before)
    added(up, second)
    assert up.node(second)["status"] == "ADDED"
    assert up.node(second)["rank"] is not None

    assert f"aws ec2 delete-tags --resources {first} --tags Key={TAG}" in done(up, "remove", first)
    gone(up, first)
    done(up, "scale", "demo", "0")
    gone(up, second)

    key = {":p": {"S": f"node#{first}"}}
    item = up.aws(
        "dynamodb",
        "query",
        "--table-name",
        up.table,
        "--key-condition-expression",
        "pk = :p",
        "--expression-attribute-values",
        json.dumps(key),
    )
    assert item["Count"] == 1
    assert set(survivors.items()) <= set(up.worker_pids().items()), "survivors keep their processes"
    assert {event["instance"] for event in up.job_events("joined")} >= {first, second}
    assert up.job_events("restart") == []


@pytest.mark.browser
def test_e1_a_person_watches_in_the_browser_how_a_node_joins_and_leaves(up: LocalUp, page: Page) -> None:
    assert up.dashboard is not None
    up.wait_for(lambda: up.job_events("segment"), 90, "the base nodes train")
    page.goto(up.dashboard)
    shown_within = 1000 * patient(30)
    expect(page.locator("[data-curve=workers] figcaption")).to_contain_text("workers: 2", timeout=shown_within)
    expect(page.locator(".changing")).to_contain_text("0 now, 0 to", timeout=shown_within)
    page.evaluate(NOTE_STATUSES)
    new = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")
    instance = new["Instances"][0]["InstanceId"]
    row = page.locator(f".nodes [data-key={instance}]")
    expect(row.locator(".status")).to_contain_text("ADDED", timeout=1000 * patient(60))
    expect(page.locator("[data-curve=workers] figcaption")).to_contain_text("workers: 3", timeout=shown_within)

    up.aws("ec2", "delete-tags", "--resources", instance, "--tags", f"Key={TAG}")
    expect(row).to_have_count(0, timeout=1000 * patient(60))
    shown = page.evaluate(f"noted['{instance}']")
    assert "ADDED" in shown
    assert shown == [status for status in LIFE if status in shown], "a look may miss one, and never sees another order"
    gone(up, instance)
    up.wait_for(lambda: tags_written(up, instance)[-1:] == ["REMOVED"], 30, "the trail tells the end", pause=1.0)
    assert tags_written(up, instance) == LIFE[1:], "a node that waits for nothing but its turn has no tag yet"


def test_hand_tagged_with_create_tags_an_instance_without_bootstrap_waits_and_is_never_terminated(up: LocalUp) -> None:
    """C33 with the real command line."""
    stranger = up.aws("ec2", "run-instances", "--image-id", "ami-0a1b2c3d4e5f60718", "--instance-type", "c5.large")[
        "Instances"
    ][0]["InstanceId"]
    up.aws("ec2", "create-tags", "--resources", stranger, "--tags", f"Key={TAG},Value=")
    up.wait_for_status(stranger, "WAITING", seconds=30, description="it shows as WAITING")
    up.aws("ec2", "delete-tags", "--resources", stranger, "--tags", f"Key={TAG}")
    up.wait_for_status(stranger, "REMOVED", seconds=30, description="it is let go")
    assert up.state(stranger) == "running"


def test_prepare_data_that_fails_is_reported_and_the_training_goes_on(up: LocalUp) -> None:
    script = up.mount / "prepare-data.py"
    good = script.read_text()
    script.write_text("import sys\nprint('the bucket is empty')\nsys.exit(3)\n")
    before = up.instances()
    up.aws("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", up.group, "--desired-capacity", "1")
    failed = new_instance(up, before)
    up.wait_for(lambda: up.status_tag(failed) == "PREPARE_FAILED", 60, "PREPARE_FAILED")
    assert "the bucket is empty" in json.dumps(up.node(failed)), "the reason is the script's own last words"
    gone_at = up.wait_for(
        lambda: up.state(failed) == "terminated", 60, "the hook is abandoned, so the group terminates it"
    )
    assert gone_at
    script.write_text(good)
    up.aws("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", up.group, "--desired-capacity", "0")
    epochs = len(up.job_events("segment"))
    up.wait_for(lambda: len(up.job_events("segment")) > epochs, 30, "the training goes on")
    assert up.job_events("restart") == []


def test_n6_a_signal_without_the_right_token_is_refused(up: LocalUp) -> None:
    up.wait_for(lambda: up.job_events("segment"), 90, "the job trains")
    value = up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"]
    endpoint = CoordinatorEndpoint.model_validate_json(value)

    async def knock() -> Any:
        async with await channel.connect(endpoint.url, endpoint.certificate) as connection:
            hello = NodeHello(
                cluster="demo", instance_id="i-0badbadbadbadbad0", private_ip="127.0.0.9", attempt=1, base=False
            )
            await channel.greet(connection, hello, SecretStr("guessed"))
            answer = channel.decode(await connection.recv())
            with pytest.raises(ConnectionClosed):
                await connection.recv()
            return answer

    answer = asyncio.run(asyncio.wait_for(knock(), patient(20)))
    assert isinstance(answer, Refused)
    assert "guessed" not in "".join(
        path.read_text(errors="replace") for path in (up.folder / "cloud").rglob("*.log")
    ), "no secret in a log"


def test_t7_a_base_worker_killed_in_mid_epoch_does_not_hang_the_job(up: LocalUp) -> None:
    epochs = len(up.job_events("segment"))
    up.wait_for(lambda: len(up.job_events("segment")) > epochs, 30, "an epoch ends, the next is under way")
    victim = next(iter(up.worker_pids()))
    os.kill(victim, signal.SIGKILL)
    at = len(up.job_events("segment"))
    up.wait_for(lambda: len(up.job_events("segment")) > at + 1, 90, "the training goes on")
    assert victim not in up.worker_pids()
    assert len(up.worker_pids()) == 2


def test_mistakes_are_one_clear_line_each_and_no_success(up: LocalUp) -> None:
    unknown = up.dyntrain("status", "--cluster", "nonesuch")
    port = up.variables["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]
    taken = up.dyntrain("local", "up", "--port", port)
    region = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "AWS_CONFIG_FILE": os.devnull
    }
    nowhere = subprocess.run(
        [DYNTRAIN, "status"], env=region, capture_output=True, text=True, timeout=patient(60), check=False
    )
    for done, word in ((unknown, "nonesuch"), (taken, port), (nowhere, "region")):
        assert done.returncode != 0
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert word in done.stderr


def test_ctrl_c_leaves_nothing_behind(up: LocalUp) -> None:
    ledger = next(iter(up.mount.glob("dyntrain/*/*/ledger")))
    port = int(up.variables["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])
    assert up.interrupt() == 0
    assert up.processes() == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the port is free"
    audit = audit_directory(ledger)
    assert (audit.lost, audit.doubled) == (0, 0)
    assert audit.epochs
