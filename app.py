"""The controller's Lambda functions: one handler for each EventBridge rule, schedule, stream and topic.

The event patterns of the rules are in `controller/core/incoming/event_rules.py`. The handlers call functions of the
package `controller`.
"""

from __future__ import annotations

import gc

# Modules, models and clients live as long as the process, so collecting garbage before the first event is useless.
gc.set_threshold(50_000)

import os
from typing import Any

from chalice.app import Chalice, CloudWatchEvent, DynamoDBEvent, Rate, SNSEvent
from dyntrain.controller import wiring
from dyntrain.controller.core.incoming.event_rules import event_patterns

gc.freeze()

app = Chalice(app_name="dyntrain")
RULES = event_patterns(wiring.settings().elastic)  # event patterns, by handler
# a placeholder: the merge template of `chalice package` sets the real stream
STREAM = os.environ.get("DYNTRAIN_STREAM_ARN", "arn:aws:dynamodb:*:*:table/dyntrain/stream/*")
ALARMS = "arn:aws:sns:*:*:dyntrain"  # a placeholder for the SNS topic of alarms


@app.on_cw_event(RULES["on_tag_change"])
def on_tag_change(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_lifecycle"])
def on_lifecycle(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_launch_result"])
def on_launch_result(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_instance_state"])
def on_instance_state(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_interruption"])
def on_interruption(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_scheduled_change"])
def on_scheduled_change(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_node_report"])
def on_node_report(event: CloudWatchEvent) -> dict[str, str]:
    return wiring.on_event(event.to_dict())


@app.on_cw_event(RULES["on_job_report"])
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


@app.on_cw_event(RULES["on_capacity_change"])
def on_capacity_change(event: CloudWatchEvent) -> dict[str, Any]:
    return wiring.on_pool_event(event.to_dict())


@app.on_cw_event(RULES["on_demand_change"])
def on_demand_change(event: CloudWatchEvent) -> dict[str, Any]:
    return wiring.on_pool_event(event.to_dict())


@app.on_sns_message(topic=ALARMS)
def notify(event: SNSEvent) -> dict[str, Any]:
    return wiring.on_alarm(event.to_dict())
