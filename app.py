"""The Lambda functions of the controller: one handler a rule. Which event goes where is said here, what it means in `controller`."""

from __future__ import annotations

import gc

gc.set_threshold(50_000)  # imports, models and clients are there to stay: the collector need not walk them again and again before the first event

import os
from typing import Any

from chalice.app import Chalice, CloudWatchEvent, DynamoDBEvent, Rate

from controller import wiring

gc.freeze()

app = Chalice(app_name="dyntrain")
TAG_SUFFIX = wiring.settings().elastic_suffix
STREAM = os.environ.get("DYNTRAIN_STREAM_ARN", "arn:aws:dynamodb:*:*:table/dyntrain/stream/*")  # the merge template names the real one


@app.on_cw_event(
    {
        "source": ["aws.tag"],
        "detail-type": ["Tag Change on Resource"],
        "detail": {"service": ["ec2"], "resource-type": ["instance"], "changed-tag-keys": [{"suffix": TAG_SUFFIX}]},
    }
)
def on_tag_change(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(
    {
        "source": ["aws.autoscaling"],
        "detail-type": ["EC2 Instance-launch Lifecycle Action", "EC2 Instance-terminate Lifecycle Action"],
    }
)
def on_lifecycle(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(
    {
        "source": ["aws.autoscaling"],
        "detail-type": [
            "EC2 Instance Launch Successful",
            "EC2 Instance Launch Unsuccessful",
            "EC2 Instance Terminate Successful",
            "EC2 Instance Terminate Unsuccessful",
        ],
    }
)
def on_launch_result(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event({"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]})
def on_instance_state(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(
    {
        "source": ["aws.ec2"],
        "detail-type": [
            "EC2 Spot Instance Interruption Warning",
            "EC2 Instance Rebalance Recommendation",
            "EC2 Capacity Reservation Instance Interruption Warning",
            "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
        ],
    }
)
def on_interruption(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(
    {
        "source": ["aws.health"],
        "detail-type": ["AWS Health Event"],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    }
)
def on_scheduled_change(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event({"source": ["dyntrain.node"]})
def on_node_report(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event({"source": ["dyntrain.coordinator"]})
def on_job_report(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_dynamodb_record(stream_arn=STREAM, batch_size=1000)
def converge(event: DynamoDBEvent) -> dict[str, int]:
    return wiring.on_records(record["dynamodb"] for record in event.to_dict()["Records"])


@app.schedule(Rate(1, unit=Rate.MINUTES))
def resync(event: Any) -> dict[str, Any]:
    return wiring.on_schedule()


@app.schedule(Rate(5, unit=Rate.MINUTES))
def rebalance(event: Any) -> dict[str, Any]:
    return wiring.on_pool_schedule()


@app.on_cw_event(
    {
        "source": ["aws.ec2"],
        "detail-type": [
            "EC2 Capacity Reservation Scheduled",
            "EC2 Capacity Reservation Active",
            "EC2 Capacity Reservation Delayed",
            "EC2 Capacity Reservation Unsupported",
            "EC2 Capacity Reservation Failed",
            "EC2 Capacity Reservation Expired",
            "EC2 Capacity Reservation Cancelled",
            "EC2 Capacity Reservation Interruptible Reclamation Complete",
            "Capacity Block Delivered",
            "Capacity Block Reservation Delivered",
            "Capacity Block Expiration Warning",
            "Capacity Block Reservation Expiration Warning",
        ],
    }
)
def on_capacity_change(event: CloudWatchEvent) -> dict[str, Any]:
    return wiring.on_pool_event(event.to_dict())


@app.on_cw_event(
    {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["pending", "shutting-down", "stopping", "stopped"]},
    }
)
def on_demand_change(event: CloudWatchEvent) -> dict[str, Any]:
    return wiring.on_pool_event(event.to_dict())
