"""Where the coordinator's membership comes from and where its word goes: SSM and EventBridge. The only module here that knows AWS."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from controller.contract import COORDINATOR_SOURCE, CoordinatorEndpoint, JobReport, Target, members_digest, parameter

log = logging.getLogger(__name__)


class HostsError(RuntimeError):
    """The outside could not be read or told; nothing changed, try again later."""


class Hosts(Protocol):
    """Blocking calls, each bounded by its client's timeouts; callers run them off the event loop."""

    def read_target(self) -> Target | None:
        """The membership wanted now, None when none was published yet. Raises HostsError."""

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        """Make the coordinator known to the nodes. Raises HostsError."""

    def published(self) -> CoordinatorEndpoint | None:
        """The coordinator that the nodes are told of now. Raises HostsError."""

    def report(self, report: JobReport) -> None:
        """Tell the controller. Raises HostsError."""


class AwsHosts:
    def __init__(self, cluster: str, table: str = "dyntrain") -> None:
        config = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "max_attempts": 3})
        session = boto3.session.Session()
        self._cluster, self._table = cluster, table
        self._ssm: Any = session.client("ssm", config=config)
        self._events: Any = session.client("events", config=config)
        self._session, self._config = session, config

    def read_target(self) -> Target | None:
        try:
            value = self._ssm.get_parameter(Name=parameter(self._cluster, "target"))["Parameter"]["Value"]
            target = Target.model_validate_json(value)
            return self._full(target) if target.members is None else target
        except self._ssm.exceptions.ParameterNotFound:
            return None
        except (BotoCoreError, ClientError, ValidationError, KeyError) as error:
            raise HostsError(f"target of cluster {self._cluster}: {error}") from error

    def _full(self, target: Target) -> Target:
        """A list that outgrew the parameter is in DynamoDB; a digest that does not fit means that it moved on meanwhile."""
        pk, _, sk = (target.pointer or "").partition("/")
        item = self._session.client("dynamodb", config=self._config).get_item(
            TableName=self._table, Key={"pk": {"S": pk}, "sk": {"S": sk}}, ConsistentRead=True
        )["Item"]
        members = tuple(entry["S"] for entry in item["members"]["L"])
        if members_digest(members) != target.digest:
            raise HostsError(
                f"target revision {target.revision} of cluster {self._cluster}: the list in {target.pointer} is of another revision; it is read again"
            )
        return target.model_copy(update={"members": members})

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        try:
            self._ssm.put_parameter(Name=parameter(self._cluster, "token"), Value=token, Type="SecureString", Overwrite=True)
            self._ssm.put_parameter(Name=parameter(self._cluster, "coordinator"), Value=endpoint.model_dump_json(), Type="String", Overwrite=True)
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"endpoint of cluster {self._cluster} not published: {error}") from error

    def published(self) -> CoordinatorEndpoint | None:
        try:
            return CoordinatorEndpoint.model_validate_json(
                self._ssm.get_parameter(Name=parameter(self._cluster, "coordinator"))["Parameter"]["Value"]
            )
        except (self._ssm.exceptions.ParameterNotFound, ValidationError):
            return None
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"endpoint of cluster {self._cluster} not read: {error}") from error

    def report(self, report: JobReport) -> None:
        entry = {"Source": COORDINATOR_SOURCE, "DetailType": report.detail_type, "Detail": report.model_dump_json()}
        try:
            answer = self._events.put_events(Entries=[entry])
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"report of cluster {self._cluster}: {error}") from error
        if answer["FailedEntryCount"]:
            raise HostsError(f"report of cluster {self._cluster} refused: {answer['Entries'][0].get('ErrorMessage')}")
