"""Every function of the deployed zip, run as Lambda runs it, against the embedded cloud: an event as AWS sends it in,
facts and effects out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deploy_lambda import Deployed
from deploy_packages import ROOT
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.reports import JobReport, NodeReport
from dyntrain.controller.core.incoming.event_rules import matching_handlers
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.events import timestamp
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.stack import create_stack

import app

FUNCTIONS = {source.name for source in app.app.event_sources}
NODE = "i-0123456789abcdef0"
KEY = "demo-aws-dl-cfn-elastic-worker"
GROUP_ARN = (
    "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:12345678-1234-1234-1234-123456789012"
    ":autoScalingGroupName/demo-workers"
)
NODE_ARN = f"arn:aws:ec2:us-east-1:123456789012:instance/{NODE}"


def event(source: str, kind: str, detail: dict[str, Any], *resources: str) -> dict[str, Any]:
    head = {
        "version": "0",
        "id": "e-1",
        "account": "123456789012",
        "region": "us-east-1",
        "time": timestamp(time.time()),
    }
    return {**head, "source": source, "detail-type": kind, "resources": list(resources), "detail": detail}


def autoscaling(kind: str, **detail: str) -> dict[str, Any]:
    return event(
        "aws.autoscaling", kind, {"AutoScalingGroupName": "demo-workers", "EC2InstanceId": NODE, **detail}, GROUP_ARN
    )


LAUNCHED = {
    "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
    "LifecycleHookName": "demo-launch",
    "LifecycleActionToken": "87654321-4321-4321-4321-210987654321",
    "Origin": "EC2",
    "Destination": "AutoScalingGroup",
}
TAGGED = {
    "changed-tag-keys": [KEY],
    "service": "ec2",
    "resource-type": "instance",
    "version": 1.0,
    "tags": {KEY: "", "dyntrain:cluster": "demo"},
}
HEALTH = {
    "eventArn": "arn:aws:health:us-east-1::event/EC2/AWS_EC2_INSTANCE_STOP_SCHEDULED/1",
    "service": "EC2",
    "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "eventTypeCategory": "scheduledChange",
    "startTime": "Thu, 05 Mar 2037 10:00:00 GMT",
    "affectedEntities": [{"entityValue": NODE, "status": "PENDING"}],
}


def intake() -> dict[str, dict[str, Any]]:
    """Events of this moment: one that is minutes old would be late, and rightly change nothing."""
    node = NodeReport(
        cluster="demo", instance_id=NODE, private_ip="10.0.0.9", attempt=1, outcome="prepared", at=time.time()
    )
    job = JobReport(
        cluster="demo",
        job="j",
        state="running",
        started_at=time.time(),
        sequence=1,
        generation=0,
        revision=0,
        members=(),
    )
    return {
        "on_tag_change": event("aws.tag", "Tag Change on Resource", TAGGED, NODE_ARN),
        "on_lifecycle": autoscaling("EC2 Instance-launch Lifecycle Action", **LAUNCHED),
        "on_launch_result": autoscaling(
            "EC2 Instance Launch Unsuccessful", EC2InstanceId="", StatusCode="Failed", StatusMessage="no capacity"
        ),
        "on_instance_state": event(
            "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": NODE, "state": "running"}, NODE_ARN
        ),
        "on_interruption": event(
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            {"instance-id": NODE, "instance-action": "terminate"},
            NODE_ARN,
        ),
        "on_scheduled_change": event("aws.health", "AWS Health Event", HEALTH, NODE),
        "on_node_report": event("dyntrain.node", node.detail_type, node.model_dump(mode="json"), NODE),
        "on_job_report": event("dyntrain.coordinator", job.detail_type, job.model_dump(mode="json")),
    }


def pool_events() -> dict[str, dict[str, Any]]:
    return {
        "on_capacity_change": event(
            "aws.ec2",
            "Capacity Block Delivered",
            {"capacity-reservation-id": "cr-0123456789abcdef0", "end-date": "2037-01-01T00:00:00Z"},
        ),
        "on_demand_change": event(
            "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": NODE, "state": "stopped"}, NODE_ARN
        ),
        "rebalance": event("aws.events", "Scheduled Event", {}, "arn:aws:events:us-east-1:123456789012:rule/rebalance"),
    }


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """With a cluster that has a pool, and no handlers of its own: the only ones are those of the zip."""
    folder = tmp_path_factory.mktemp("cloud")
    options = replace(
        Options(),
        machines=False,
        describe_lag=0.0,
        behind=0.0,
        handler_processes=1,
        handler_environment={"TOY_DIRECTORY": str(folder)},
    )
    toy = ROOT / "tests" / "local" / "toy"
    with Cloud(app="toy_app:app", app_directory=toy, state_dir=folder / "state", options=options) as cloud:
        pool = {"instance_type": "c5.large", "group": "demo-workers", "readings": 1, "reading_seconds": 0.0}
        create_stack(cloud, "demo", ("true",), {"WorkerCount": "0"}, {"pool": {**pool, "dry_run": False}})
        yield cloud


@pytest.fixture(scope="module")
def deployed(package: Path, cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    variables = {**cloud.environment, "DYNTRAIN_TABLE": cloud.table}
    return Deployed.unpacked(package, tmp_path_factory.mktemp("lambda"), variables)


def test_every_function_of_the_app_is_run_here_with_an_event_that_its_rule_matches() -> None:
    payloads = {name: payload for name, payload in {**intake(), **pool_events()}.items() if name != "rebalance"}
    assert {name for name, payload in payloads.items() if name not in matching_handlers(ELASTIC_TAG, payload)} == set()
    assert {*payloads, "rebalance", "resync", "converge", "notify"} == FUNCTIONS


def test_the_zip_takes_events_in_converges_on_what_it_stored_reads_the_cloud_and_hands_over_reservations(
    deployed: Deployed, cloud: Cloud
) -> None:
    """JSON in, JSON out, in the order in which the parts follow each other; a second delivery of the same event is no
    news.
    """
    taken_in = intake()
    for function, payload in taken_in.items():
        answer, loaded = deployed.invoke(function, payload)
        assert answer["kind"] == "applied", (function, answer)
        assert {"app", "chalice", "dyntrain.controller", "pydantic", "aws_lambda_powertools"} <= loaded
        assert not {"boto3", "moto", "dyntrain.training", "dyntrain.node_bootstrap"} & loaded
    assert deployed.invoke("on_tag_change", taken_in["on_tag_change"])[0]["kind"] == "unchanged"

    items = cloud.client("dynamodb").scan(TableName=cloud.table)["Items"]
    assert {item["pk"]["S"] for item in items} == {f"node#{NODE}", "job#demo", "group#demo-workers"}
    record = {"eventName": "INSERT", "eventSourceARN": "s", "eventID": "1", "awsRegion": "us-east-1"}
    records = [
        {**record, "dynamodb": {"NewImage": item, "Keys": {"pk": item["pk"], "sk": item["sk"]}}} for item in items
    ]
    assert deployed.invoke("converge", {"Records": records})[0]["clusters"] == 1
    stored = cloud.client("dynamodb").get_item(
        TableName=cloud.table, Key={"pk": {"S": f"node#{NODE}"}, "sk": {"S": "facts"}}
    )["Item"]
    assert "REMOVED INTERRUPTED" in stored["facts"]["S"], "the notice is known, and what follows from it was remembered"

    resynced, _ = deployed.invoke(
        "resync", event("aws.events", "Scheduled Event", {}, "arn:aws:events:us-east-1:123456789012:rule/resync")
    )
    assert (resynced["clusters"], resynced["complete"]) == (1, True)

    message = {"MessageId": "m-1", "Subject": "s", "Message": "mend it", "MessageAttributes": {}}
    alarm = {"Records": [{"EventSource": "aws:sns", "Sns": message}]}
    assert deployed.invoke("notify", alarm)[0] == {"sent": 0, "repeated": 0, "skipped": "the stage has no webhook"}

    cloud.reservations.reserve_instances("c5.large", 2)
    pools = {function: deployed.invoke(function, payload)[0] for function, payload in pool_events().items()}
    assert [answer["pools"] for answer in pools.values()] == [1, 1, 1]
    assert all(answer["complete"] for answer in pools.values())
    assert "demo" in pools["on_capacity_change"]["changed"], "the first to look acts"
