"""T22 and T21 on the embedded cloud: a person has a base node replaced, then the master's machine is terminated; the
job trains on to its end.

The tests share one cloud and run in order: the second begins where the first left it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from dyntrain.training.audit import audit_directory
from local_up import LocalUp

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
EPOCHS = 120


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUp]:
    local_up = LocalUp(tmp_path_factory.mktemp("base"), "--resync-seconds", "3", "--base-workers", "1", epochs=EPOCHS)
    try:
        yield local_up
    finally:
        if local_up.process.poll() is None:
            local_up.interrupt()


def test_t22_a_base_node_is_replaced_by_a_command_and_its_machine_ends(up: LocalUp) -> None:
    master, old = re.findall(r"i-[0-9a-f]{17}", re.findall(r"base nodes +(.*)", up.output())[0])
    up.wait_for(lambda: up.job_events("segment"), 90, "the base nodes train")
    new = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")["Instances"][0][
        "InstanceId"
    ]
    up.wait_for_status(new, "ADD_QUEUED", "ADDED", seconds=90, description="the successor is prepared")

    def profile(node: str) -> str:
        described = up.aws("ec2", "describe-instances", "--instance-ids", node)["Reservations"][0]["Instances"][0]
        return str(described["IamInstanceProfile"]["Arn"])

    assert profile(new) != profile(old) == profile(master)
    refused = up.dyntrain("base", "replace", master, new)
    assert (refused.returncode, "runs the coordinator" in refused.stderr) == (1, True)

    done = up.dyntrain("base", "replace", old, new)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert done.stderr.endswith("cluster demo\n"), "where it is done, and nothing else"
    assert profile(new) == profile(master), "it may have to publish itself as coordinator"
    up.wait_for(lambda: up.state(old) == "terminated", 120, "the old base node is released")
    assert up.dyntrain("base", "replace", old, new).returncode == 0, "asked again, when all is done"

    left = [event["leaving"] for event in up.job_events("forming") if old in event["leaving"]]
    assert left == [[old]]
    assert up.job_events("restart") == []
    assert up.job_events("forming")[-1]["members"] == [master, new]


def test_t21_the_job_of_a_terminated_master_is_finished_by_the_next_base_node(up: LocalUp) -> None:
    master, other = up.job_events("forming")[-1]["members"]
    before = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"])
    target = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/target")["Parameter"]["Value"])
    assert (before["instance_id"], target["coordinator"]) == (master, master)

    up.aws("ec2", "terminate-instances", "--instance-ids", master)
    up.wait_for(lambda: up.job_events("takeover"), 60, "the other base node takes over")
    takeover = up.job_events("takeover")[0]
    assert (takeover["instance"], takeover["former"]) == (other, master)
    up.let_it_finish()
    up.wait_for(lambda: up.job_events("finished"), 120, "the job finishes")

    after = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"])
    assert (after["instance_id"], after["job"]) == (other, before["job"])
    assert (after["url"] != before["url"], after["certificate"] != before["certificate"]) == (True, True)
    started = [step["at"] for step in up.job_events("forming") if step["at"] > takeover["at"]]
    assert started, "a generation was formed under the new coordinator"
    audit = audit_directory(next(iter(up.mount.glob("dyntrain/*/*/ledger"))))
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, EPOCHS)
    assert up.interrupt() == 0
    assert up.processes() == []
