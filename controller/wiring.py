"""Ties ports to AWS, once in a process and on first use, and offers the app one function a kind of handler."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from controller.contract import NODE_SOURCE
from controller.errors import Quarantined
from controller.instance_identity import Keys
from controller.intake import take_in
from controller.ports import Ports
from controller.settings import IDENTITY_KEYS, Settings

if TYPE_CHECKING:
    from controller.adapters.aws import Clients
    from controller.reserved_ports import PoolPorts

logger = Logger(service="dyntrain")  # loggers below "dyntrain" inherit its JSON format


@cache
def settings() -> Settings:
    return Settings.of(os.environ)


def aws_ports(table: str, attempts: int = 6, clients: Clients | None = None) -> Ports:
    """Ports on AWS, over `clients` or ones of their own. Makes no client and calls nothing yet."""
    from controller.adapters import aws
    from controller.adapters.autoscaling import AutoScalingGroups  # botocore costs an intake handler nothing before its first event
    from controller.adapters.dynamodb import TableClusters, TableGroups, TableJobs, TableNodes
    from controller.adapters.ec2 import Ec2Instances
    from controller.adapters.metrics import EmbeddedMetrics
    from controller.adapters.ssm import SsmParameters

    clients = clients or aws.Clients(attempts=attempts)
    return Ports(
        nodes=TableNodes(clients, table),
        jobs=TableJobs(clients, table),
        clusters=TableClusters(clients, table),
        parameters=SsmParameters(clients),
        instances=Ec2Instances(clients),
        groups=AutoScalingGroups(clients),
        clock=time.time,
        group_records=TableGroups(clients, table),
        metrics=EmbeddedMetrics(table),
    )


def aws_pool_ports(table: str, attempts: int = 6, clients: Clients | None = None) -> PoolPorts:
    """As `aws_ports`, with what the reserved pool needs besides."""
    from controller.adapters import aws
    from controller.adapters.reservations import Ec2Reservations, TableLedger
    from controller.reserved_ports import PoolPorts

    clients = clients or aws.Clients(attempts=attempts)
    return PoolPorts(aws_ports(table, attempts, clients), Ec2Reservations(clients), TableLedger(clients, table))


@cache
def _ports() -> Ports:
    return aws_ports(settings().table)


@cache
def _registry() -> Any:
    from controller.registry import Registry

    return Registry(_ports().parameters, _ports().clock)


@cache
def _identity_keys() -> Keys:
    """Says once in a process when there are none."""
    keys = settings().identity_keys
    if not keys:
        logger.warning("node reports are taken at their word: %s holds no keys that would show which instance they are from", IDENTITY_KEYS)
    return keys


def on_event(event: Mapping[str, Any]) -> dict[str, str]:
    """An EventBridge event into facts. Raises RetryLater for Lambda to deliver it again, Quarantined for it to end in the dead-letter queue."""
    keys = _identity_keys() if event.get("source") == NODE_SOURCE else ()
    outcome = take_in(_ports(), event, settings().elastic_suffix, keys)
    if outcome.kind == "quarantined":
        raise Quarantined(outcome.reason)
    return asdict(outcome)


def on_records(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """A batch of the table's stream (the `dynamodb` part of each record). Raises RetryLater for the batch to be delivered again.

    A record that cannot be read is raised (Quarantined) after the others were handled: Lambda halves the batch until it stands alone.
    """
    from controller.adapters.items import readable, wake_of
    from controller.converge import converge

    good, problems = readable(list(records))
    decisions = converge(_ports(), _registry(), wake_of(good), settings().elastic_suffix)
    if problems:
        raise Quarantined("; ".join(problems))
    return {"clusters": len(decisions), "actions": sum(len(decision.actions) for decision in decisions)}


def on_schedule() -> dict[str, Any]:
    """The periodic reading of EC2 and Auto Scaling."""
    from controller.resync import resync

    return asdict(resync(_ports(), _registry(), settings().elastic_suffix))


@cache
def _pool_ports() -> PoolPorts:
    return aws_pool_ports(settings().table)


def on_pool_schedule() -> dict[str, Any]:
    """The periodic look at the reserved pool. Raises RetryLater for Lambda to run it again."""
    from controller.rebalance import rebalance

    return asdict(rebalance(_pool_ports(), _registry(), settings().elastic_suffix))


def on_pool_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """A reservation or the demand for it has changed. Raises as `on_pool_schedule`, and Quarantined for what is no such event."""
    from controller.events import Dropped, observe
    from controller.rebalance import rebalance

    news = observe(event, settings().elastic_suffix)
    if isinstance(news, Dropped) and news.outcome == "quarantined":
        raise Quarantined(news.reason)
    return asdict(rebalance(_pool_ports(), _registry(), settings().elastic_suffix, prompted=True))
