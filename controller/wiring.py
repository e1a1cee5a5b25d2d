"""The functions that the Lambda handlers of `app.py` call, with ports connected to AWS.

A port is an interface through which the controller uses one AWS service. A port is created at the first use in a
process, and used again later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from dyntrain.controller.adapters.on_aws import aws_pool_ports, aws_ports
from dyntrain.controller.contract.errors import ControllerError, Quarantined
from dyntrain.controller.contract.instance_identity import Keys
from dyntrain.controller.contract.messages import COORDINATOR_SOURCE, NODE_SOURCE, sender
from dyntrain.controller.contract.settings import IDENTITY_KEYS, Settings
from dyntrain.controller.loops.intake import take_in
from dyntrain.controller.loops.ports import Ports

if TYPE_CHECKING:
    from dyntrain.controller.pool.ports import PoolPorts

logger = Logger(service="dyntrain")  # loggers below "dyntrain" inherit its JSON format


@cache
def settings() -> Settings:
    return Settings.of(os.environ)


@cache
def _ports() -> Ports:
    stage = settings().function_stage()
    return aws_ports(stage.table, stage=stage.name)


@cache
def _policy_registry() -> Any:
    from dyntrain.controller.loops.registry import Registry

    return Registry(_ports().parameters, _ports().clock, settings().stage)


@cache
def _identity_keys() -> Keys:
    """The public keys that verify the senders of reports. If no keys are configured, a warning is logged once in a
    process.
    """
    identity_keys = settings().identity_keys
    if not identity_keys:
        logger.warning(
            "reports are accepted without verification of their senders: %s holds no public keys", IDENTITY_KEYS
        )
    return identity_keys


def on_event(event: Mapping[str, Any]) -> dict[str, str]:
    """Store the facts that an EventBridge event reports. Raises RetryLater when Lambda should deliver the event again.
    Raises Quarantined for an event that belongs in the dead-letter queue.
    """
    identity_keys = _identity_keys() if sender(str(event.get("source")))[0] in (NODE_SOURCE, COORDINATOR_SOURCE) else ()
    intake_outcome = take_in(_ports(), event, settings().elastic, identity_keys)
    if intake_outcome.kind == "quarantined":
        raise Quarantined(intake_outcome.reason)
    return asdict(intake_outcome)


def on_records(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Decide and act on the clusters that a batch of records of the DynamoDB table's stream concerns. Each element of
    `records` is the field `dynamodb` of a record in Lambda's event.

    Raises RetryLater when Lambda should deliver the batch again. Raises Quarantined for an unreadable record, after the
    readable records were handled. After Quarantined, Lambda halves the batch until the unreadable record is alone in a
    batch.
    """
    from dyntrain.controller.adapters.items import readable_records, wake_of
    from dyntrain.controller.loops.converge import converge

    valid_records, record_problems = readable_records(list(records))
    decisions = converge(_ports(), _policy_registry(), wake_of(valid_records), settings().elastic)
    if record_problems:
        raise Quarantined("; ".join(record_problems))
    return {"clusters": len(decisions), "actions": sum(len(decision.actions) for decision in decisions)}


def on_schedule() -> dict[str, Any]:
    """Run the periodic resync: read EC2 and Auto Scaling, then check the jobs."""
    from dyntrain.controller.loops.resync import resync

    resync_result = asdict(resync(_ports(), _policy_registry(), settings().elastic))
    return {**resync_result, "jobs": _check_jobs()}


def _check_jobs() -> dict[str, int] | None:
    """Check the state of all jobs. Errors of the check are only logged, so that a broken job does not stop the resync
    of clusters.
    """
    from dyntrain.controller.jobs.watch import watch_jobs

    try:
        return watch_jobs(_job_ports())
    except ControllerError as error:
        logger.error("the jobs could not be checked: %s", error)
        return None


@cache
def _job_ports() -> Any:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.jobs import job_ports

    return job_ports(Clients(), settings().function_stage().table, _ports().clock)


@cache
def _pool_ports() -> PoolPorts:
    stage = settings().function_stage()
    return aws_pool_ports(stage.table, stage=stage.name)


def on_pool_schedule() -> dict[str, Any]:
    """Called periodically to distribute idle reserved instances to clusters. Raises RetryLater when Lambda should run
    the function again.
    """
    from dyntrain.controller.pool.rebalance import rebalance

    return asdict(rebalance(_pool_ports(), _policy_registry(), settings().elastic))


def on_pool_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Distribute idle reserved instances to clusters after a reservation or the use of a reservation has changed.
    Raises RetryLater when Lambda should run the function again. Raises Quarantined for a malformed event.
    """
    from dyntrain.controller.core.incoming.events import DroppedEvent, observe
    from dyntrain.controller.pool.rebalance import rebalance

    observation = observe(event, settings().elastic)
    if isinstance(observation, DroppedEvent) and observation.outcome == "quarantined":
        raise Quarantined(observation.reason)
    return asdict(rebalance(_pool_ports(), _policy_registry(), settings().elastic, prompted=True))


def on_alarm(event: Mapping[str, Any]) -> dict[str, Any]:
    """Send a message from the SNS topic of the alarms to the webhook. If sending fails, an error is raised, and Lambda
    runs the function again.
    """
    from dyntrain.controller.adapters.on_aws import aws_notify_ports
    from dyntrain.controller.loops.notify import notify

    stage = settings().function_stage()
    return asdict(notify(aws_notify_ports(stage.table, attempts=3, stage=stage.name), event, stage.name or ""))
