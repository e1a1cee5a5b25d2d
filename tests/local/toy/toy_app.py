"""A Chalice app for the embedded cloud's tests: each handler writes down what it got, in the folder that TOY_DIRECTORY
names.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

from chalice import Chalice
from chalice.app import CloudWatchEvent, DynamoDBEvent

app = Chalice(app_name="toy")


def note(handler: str, payload: object) -> None:
    folder = Path(os.environ["TOY_DIRECTORY"])
    line = {
        "handler": handler,
        "pid": os.getpid(),
        "function": os.environ["AWS_LAMBDA_FUNCTION_NAME"],
        "payload": payload,
    }
    written = folder / f".{uuid.uuid4()}"
    written.write_text(json.dumps(line))
    written.rename(folder / f"{time.time_ns()}-{uuid.uuid4()}.json")


@app.on_cw_event({"source": ["aws.tag"], "detail": {"changed-tag-keys": [{"suffix": "-elastic-worker"}]}})
def on_tag_change(event: CloudWatchEvent) -> None:
    note("on_tag_change", event.to_dict())


@app.on_cw_event({"source": ["aws.autoscaling"]})
def on_autoscaling(event: CloudWatchEvent) -> None:
    note("on_autoscaling", event.to_dict())


@app.on_cw_event({"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]})
def on_state(event: CloudWatchEvent) -> None:
    note("on_state", event.to_dict())


@app.on_cw_event({"source": ["toy"]})
def on_toy(event: CloudWatchEvent) -> str:
    """Does as the event says: fails, sleeps or ends its process, but only as often as told."""
    detail = event.to_dict()["detail"]
    note("on_toy", event.to_dict())
    if "fail" in detail:
        raise ValueError(detail["fail"])
    if "exit" in detail:
        marker = Path(os.environ["TOY_DIRECTORY"]) / f"exited-{detail['exit']}"
        if not marker.exists():
            marker.touch()
            os._exit(3)
    time.sleep(detail.get("sleep", 0))
    return "done"


@app.schedule("rate(1 minute)")
def on_minute(event: CloudWatchEvent) -> None:
    note("on_minute", event.to_dict())


@app.on_dynamodb_record("arn:aws:dynamodb:us-east-1:123456789012:table/dyntrain/stream/label", batch_size=100)
def on_records(event: DynamoDBEvent) -> None:
    records = event.to_dict()["Records"]
    assert [record.new_image for record in event]
    note("on_records", records)
    if any("poison" in record["dynamodb"].get("NewImage", {}) for record in records):
        raise ValueError("poison")
