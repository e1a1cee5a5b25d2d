"""T21 on the embedded cloud: the master's machine is terminated while the job trains, and the job goes on to its end on another base node."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from local_up import LocalUp

from training.audit import audit_directory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_t21_the_job_of_a_terminated_master_is_finished_by_the_next_base_node(tmp_path: Path) -> None:
    up = LocalUp(tmp_path, "--epochs", "12", "--resync-seconds", "5", "--base-workers", "1")
    try:
        master, other = re.findall(r"i-[0-9a-f]{17}", re.findall(r"base nodes +(.*)", up.output())[0])
        up.wait_for(lambda: len(up.job_events("segment")) > 2, 90, "the base nodes train and commit")
        before = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"])
        target = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/target")["Parameter"]["Value"])
        assert (before["instance_id"], target["coordinator"]) == (master, master)

        up.aws("ec2", "terminate-instances", "--instance-ids", master)
        up.wait_for(lambda: up.job_events("takeover"), 60, "the other base node takes over")
        takeover = up.job_events("takeover")[0]
        assert (takeover["instance"], takeover["former"]) == (other, master)
        up.wait_for(lambda: up.job_events("finished"), 120, "the job finishes")

        after = json.loads(up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"])
        assert (after["instance_id"], after["job"]) == (other, before["job"])
        assert (after["url"] != before["url"], after["certificate"] != before["certificate"]) == (True, True)
        assert [segment["epoch"] for segment in up.job_events("segment")][-1] == 11
        started = [step["at"] for step in up.job_events("forming") if step["at"] > takeover["at"]]
        assert started, "a generation was formed under the new coordinator"
        audit = audit_directory(next(iter(up.mount.glob("dyntrain/*/*/ledger"))))
        assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 12)
    finally:
        assert up.interrupt() == 0
    assert up.processes() == []
