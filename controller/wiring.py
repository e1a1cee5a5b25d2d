"""Ties ports to AWS, once in a process and on first use, and offers the app one function a kind of handler."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from controller.intake import take_in
from controller.ports import Ports
from controller.settings import Settings

logger = Logger(service="dyntrain")  # loggers below "dyntrain" inherit its JSON format


@cache
def settings() -> Settings:
    return Settings.of(os.environ)


def aws_ports(table: str, attempts: int = 6) -> Ports:
    """Ports on AWS. Makes no client and calls nothing yet."""
    from controller.adapters.autoscaling import AutoScalingGroups  # botocore costs an intake handler nothing before its first event
    from controller.adapters.aws import Clients
    from controller.adapters.dynamodb import TableClusters, TableJobs, TableNodes
    from controller.adapters.ec2 import Ec2Instances
    from controller.adapters.ssm import SsmParameters

    clients = Clients(attempts=attempts)
    return Ports(
        nodes=TableNodes(clients, table),
        jobs=TableJobs(clients, table),
        clusters=TableClusters(clients, table),
        parameters=SsmParameters(clients),
        instances=Ec2Instances(clients),
        groups=AutoScalingGroups(clients),
        clock=time.time,
    )


@cache
def _ports() -> Ports:
    return aws_ports(settings().table)


@cache
def _registry() -> Any:
    from controller.registry import Registry

    return Registry(_ports().parameters, _ports().clock)


def on_event(event: Mapping[str, Any]) -> dict[str, str]:
    """An EventBridge event into facts. Raises RetryLater for Lambda to deliver it again."""
    return asdict(take_in(_ports(), event, settings().elastic_suffix))


def on_records(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """A batch of the table's stream (the `dynamodb` part of each record). Raises RetryLater for the batch to be delivered again."""
    from controller.adapters.items import wake_of
    from controller.converge import converge

    decisions = converge(_ports(), _registry(), wake_of(list(records)), settings().elastic_suffix)
    return {"clusters": len(decisions), "actions": sum(len(decision.actions) for decision in decisions)}


def on_schedule() -> dict[str, Any]:
    """The periodic reading of EC2 and Auto Scaling."""
    from controller.resync import resync

    return asdict(resync(_ports(), _registry(), settings().elastic_suffix))
