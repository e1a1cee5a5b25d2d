"""T22 on the embedded cloud: a person has a base node replaced, and its machine is terminated, while the job trains on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from local_up import LocalUp

from training.audit import audit_directory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_t22_a_base_node_is_replaced_by_a_command_and_its_machine_ends(tmp_path: Path) -> None:
    up = LocalUp(tmp_path, "--epochs", "16", "--resync-seconds", "3", "--base-workers", "1")
    try:
        master, old = re.findall(r"i-[0-9a-f]{17}", re.findall(r"base nodes +(.*)", up.output())[0])
        up.wait_for(lambda: up.job_events("segment"), 90, "the base nodes train")
        new = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")["Instances"][0]["InstanceId"]
        up.wait_for(lambda: up.node(new).get("status") in ("ADD_QUEUED", "ADDED"), 90, "the successor is prepared")
        refused = up.dyntrain("base", "replace", master, new)
        assert (refused.returncode, "runs the coordinator" in refused.stderr) == (1, True)

        asked = up.dyntrain("base", "replace", old, new)
        assert (asked.returncode, asked.stderr) == (0, "")
        up.wait_for(lambda: up.state(old) == "terminated", 120, "the old base node is released")
        assert up.dyntrain("base", "replace", old, new).returncode == 0, "asked again, when all is done"
        up.wait_for(lambda: up.job_events("finished"), 180, "the job finishes")

        left = [event["leaving"] for event in up.job_events("forming") if old in event["leaving"]]
        assert left == [[old]]
        assert up.job_events("restart") == []
        assert up.job_events("forming")[-1]["members"] == [master, new]
        audit = audit_directory(next(iter(up.mount.glob("dyntrain/*/*/ledger"))))
        assert (audit.exact, len(audit.epochs)) == (True, 16)
    finally:
        assert up.interrupt() == 0
    assert up.processes() == []
