"""What scripts read from `--json`: the keys of each command's output, as accepted in `output_keys.json`."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableJobs, TableNodes
from dyntrain.controller.adapters.jobs import TableJobRecords
from dyntrain.controller.contract.job_files import Exit
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.history.trail import ActionDone, Metered, StatusChanged
from dyntrain.controller.core.records.facts import (
    ClusterStatement,
    NodeFacts,
    Preparation,
    SignOfLife,
    StateRead,
    TagsEvent,
)
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine
from dyntrain.controller.loops.ports import StoredNode
from moto_account import TABLE, Run
from output_keys import keys_of

ACCEPTED = json.loads(Path(__file__).with_name("output_keys.json").read_text())
REPORT = Path(__file__).parents[1] / "contracts" / "job_report.json"
NODE, TAG, AT = "i-0aaaaaaaaaaaaaaa1", "demo-aws-dl-cfn-elastic-worker", 1_700_000_000.0
POOL = {
    "at": AT,
    "reserved": [{"id": "ri-1", "instance_type": "c5.xlarge", "count": 4, "end": AT + 9e7}],
    "usage": [{"instance_type": "c5.large", "zone": "eu-central-1a", "count": 3}],
    "pools": [{"cluster": "alpha", "instance_type": "c5.large", "max": 4, "base": 1, "current": 1}],
}
EVENT = {
    "id": "e1",
    "source": "aws.tag",
    "detail-type": "Tag Change on Resource",
    "time": "2026-01-01T00:00:00Z",
    "resources": [f"arn:aws:ec2:eu-north-1:444455556666:instance/{NODE}"],
    "account": "444455556666",
    "detail": {
        "changed-tag-keys": [TAG],
        "service": "ec2",
        "resource-type": "instance",
        "version": 1,
        "tags": {TAG: ""},
    },
}


def test_commands_print_the_accepted_keys(run: Run, clients: Clients, tmp_path: Path) -> None:
    fill(clients, run)
    (tmp_path / "pool.json").write_text(json.dumps(POOL))
    (tmp_path / "event.json").write_text(json.dumps(EVENT))
    commands = {
        "cluster list": ["cluster", "list"],
        "cluster show": ["cluster", "show", "demo"],
        "cost": ["cost", "demo"],
        "doctor --offline": ["doctor", "--offline"],
        "doctor": ["doctor"],
        "events": ["events", "demo", "--since", "2020-01-01T00:00:00Z"],
        "explain": ["explain", NODE],
        "job list": ["job", "list"],
        "model": ["model", "--workers", "2", "--bases", "1"],
        "pool plan": ["pool", "plan", "--from-file", str(tmp_path / "pool.json")],
        "replay": ["replay", str(tmp_path / "event.json")],
        "status": ["status", "demo"],
    }
    outputs = {name: run(*arguments, "--json").stdout for name, arguments in commands.items()}
    printed = {name: keys_of(output) for name, output in outputs.items()}
    printed["job status"] = {"machines": sorted(field.name for field in fields(Machine)), "exit": sorted(Exit._fields)}
    assert json.loads(json.dumps(printed)) == ACCEPTED, f"to accept the change: {json.dumps(printed, indent=1)}"


def fill(clients: Clients, run: Run) -> None:
    """A cluster with a node, its history and its costs, and a job."""
    run("cluster", "create", "demo", "--group", "demo-workers")
    facts = NodeFacts(
        instance=NODE,
        named=ClusterStatement(at=AT, cluster="demo"),
        tags_event=TagsEvent(version=4, at=AT + 5, tags={TAG: ""}),
        state_read=StateRead(started=AT + 8, state="running", launched_at=AT),
        preparation=Preparation(attempt=2, at=AT + 9, outcome="prepare_failed", reason="exit 3"),
        heard=SignOfLife(at=AT + 4, doing="prepare-data runs"),
    )
    TableNodes(clients, TABLE).put(StoredNode(facts, 0), wake=False, expires=None)
    report = JobReport.model_validate_json(REPORT.read_text()).model_copy(update={"cluster": "demo"})
    TableJobs(clients, TABLE).put("demo", JobFacts(report=report, heard_at=AT), 0, wake=False)
    now = time.time()
    usage = Metered.model_validate(
        {"state": "on", "type": "c5.large", "market": "spot", "since": now - 7200, "instance": NODE, "role": "elastic"}
    )
    status = StatusChanged(instance=NODE, before="", after="WAITING PREPARING")
    done = ActionDone(kind="SetStatusTag", instance=NODE, value="ADDED")
    TableClusters(clients, TABLE).record("demo", now - 3600, [usage, status, done])
    job: dict[str, Any] = {"name": "mnist", "submission": "5ub", "digest": "d", "bucket": "b", "nodes": 1}
    job |= {"instance_type": "c5.large", "max_hours": 1.0, "since": now, "changed": now, "state": "RUNNING"}
    TableJobRecords(clients, TABLE).put(StoredJob(JobRecord(**job), 0), over=False)
