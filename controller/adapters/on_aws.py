"""Build the controller's ports (interfaces to the outside world) on AWS, for Lambda functions and the command line.

AWS's libraries are imported on first use, so that a Lambda function's cold start loads only the modules that the
function needs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dyntrain.controller.loops.ports import Ports

if TYPE_CHECKING:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.loops.notify import NotifyPorts
    from dyntrain.controller.pool.ports import PoolPorts


def aws_ports(table: str, attempts: int = 6, clients: Clients | None = None, stage: str | None = None) -> Ports:
    """Build the controller's ports on AWS from `clients`, or from new clients if `clients` is None. No botocore client
    is created and no request is sent until a port is used.
    """
    from dyntrain.controller.adapters import aws
    from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
    from dyntrain.controller.adapters.dynamodb import TableClusters, TableGroups, TableJobs, TableNodes
    from dyntrain.controller.adapters.ec2 import Ec2Instances
    from dyntrain.controller.adapters.metrics import EmbeddedMetrics
    from dyntrain.controller.adapters.ssm import SsmParameters

    clients = clients or aws.Clients(attempts=attempts)
    return Ports(
        nodes=TableNodes(clients, table),
        jobs=TableJobs(clients, table),
        clusters=TableClusters(clients, table),
        parameters=SsmParameters(clients, stage),
        instances=Ec2Instances(clients),
        groups=AutoScalingGroups(clients),
        clock=time.time,
        group_records=TableGroups(clients, table),
        metrics=EmbeddedMetrics(table),
    )


def aws_pool_ports(
    table: str, attempts: int = 6, clients: Clients | None = None, stage: str | None = None
) -> PoolPorts:
    """Build the ports of `aws_ports`, and the ports for the pool of reserved EC2 capacity."""
    from dyntrain.controller.adapters import aws
    from dyntrain.controller.adapters.reservations import Ec2Reservations, TableLedger
    from dyntrain.controller.pool.ports import PoolPorts

    clients = clients or aws.Clients(attempts=attempts)
    return PoolPorts(aws_ports(table, attempts, clients, stage), Ec2Reservations(clients), TableLedger(clients, table))


def aws_notify_ports(
    table: str, attempts: int = 6, clients: Clients | None = None, stage: str | None = None
) -> NotifyPorts:
    """Build the ports for sending alarms to a webhook."""
    from dyntrain.controller.adapters import aws
    from dyntrain.controller.adapters.dynamodb import TableNotices
    from dyntrain.controller.adapters.ssm import SsmSecrets
    from dyntrain.controller.adapters.webhook import HttpsSender
    from dyntrain.controller.loops.notify import NotifyPorts

    clients = clients or aws.Clients(attempts=attempts)
    return NotifyPorts(TableNotices(clients, table), SsmSecrets(clients, stage), HttpsSender(), time.time)
