"""The coordinator's connection to the controller, through SSM, DynamoDB and EventBridge."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import (
    COORDINATOR_SOURCE,
    CoordinatorEndpoint,
    Target,
    members_digest,
    parameter,
    source_of,
)
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.contract.stage import STAGES, chosen_stage, stage_parameter
from dyntrain.training.host import aws
from pydantic import ValidationError

log = logging.getLogger(__name__)


class HostsError(RuntimeError):
    """A call to the controller failed and had no effect; the caller should try again later."""


class Hosts(Protocol):
    """Calls to the controller, which block for at most the client's timeouts.

    Call the controller only in threads outside the event loop.
    """

    def read_target(self) -> Target | None:
        """The target (the members that the controller wants), or None if no target was published yet.

        Raises HostsError.
        """

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        """Publish the coordinator's endpoint and token, with which the nodes connect. Raises HostsError."""

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        """The coordinator's endpoint that is published now, or None if no endpoint is published. Raises HostsError."""

    def report(self, report: JobReport) -> None:
        """Send a job report to the controller. Raises HostsError."""


class AwsHosts:
    """Calls a controller that runs on AWS.

    `stage` is the name of one of several controllers in the account, or None for the only controller.
    """

    def __init__(self, cluster: str, stage: str | None = None) -> None:
        self._cluster, self._stage = cluster, stage
        self._clients: dict[str, Any] = {}

    def _get_client(self, service: str) -> Any:
        """Return the client of an AWS service; each client is made only once. Raises BotoCoreError."""
        if service not in self._clients:
            self._clients[service] = aws.session().client(service, config=aws.SETTINGS)  # type: ignore[call-overload]
        return self._clients[service]

    def _read_parameter(self, name: str) -> str | None:
        """Read an SSM parameter, or return None if the parameter does not exist.

        Raises BotoCoreError or ClientError.
        """
        try:
            return str(self._get_client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
        except ClientError as error:
            if error.response["Error"]["Code"] == "ParameterNotFound":
                return None
            raise

    def read_target(self) -> Target | None:
        try:
            target_json = self._read_parameter(parameter(self._cluster, "target"))
            if target_json is None:
                return None
            target = Target.model_validate_json(target_json)
            if self._stage is not None and target.stage not in (None, self._stage):
                raise HostsError(
                    f"target revision {target.revision} of cluster {self._cluster} is refused: the controller of stage "
                    f"{target.stage} wrote it, and the cluster belongs to {self._stage}; set the stage in its policy"
                )
            return self._add_members(target) if target.members is None else target
        except (BotoCoreError, ClientError, ValidationError, KeyError, Misconfigured) as error:
            raise HostsError(f"target of cluster {self._cluster} not read: {error}") from error

    def _add_members(self, target: Target) -> Target:
        """Add the members, from DynamoDB, to a target whose list of members was too long for the SSM parameter.

        Raises HostsError if the list in DynamoDB belongs to another revision of the target, so that its digest does not
        match.
        """
        hash_key, _, sort_key = (target.pointer or "").partition("/")
        table_item = self._get_client("dynamodb").get_item(
            TableName=self._read_table_name(), Key={"pk": {"S": hash_key}, "sk": {"S": sort_key}}, ConsistentRead=True
        )["Item"]
        members = tuple(entry["S"] for entry in table_item["members"]["L"])
        if members_digest(members) != target.digest:
            raise HostsError(
                f"target revision {target.revision} of cluster {self._cluster}: the list in {target.pointer} is of "
                "another revision; it is read again"
            )
        return target.model_copy(update={"members": members})

    def _read_table_name(self) -> str:
        """Read the name of the controller's DynamoDB table from an SSM parameter."""
        if self._stage is not None:
            parameter_name = stage_parameter(self._stage, "table")
            table_name = self._read_parameter(parameter_name)
            if table_name is None:
                raise HostsError(f"the parameter {parameter_name} does not exist: is the controller deployed here?")
            return table_name
        parameter_pages = (
            self._get_client("ssm").get_paginator("get_parameters_by_path").paginate(Path=STAGES, Recursive=True)
        )
        return chosen_stage(
            {entry["Name"]: entry["Value"] for page in parameter_pages for entry in page["Parameters"]}, None
        ).table

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        try:
            ssm = self._get_client("ssm")
            ssm.put_parameter(Name=parameter(self._cluster, "token"), Value=token, Type="SecureString", Overwrite=True)
            ssm.put_parameter(
                Name=parameter(self._cluster, "coordinator"),
                Value=endpoint.model_dump_json(),
                Type="String",
                Overwrite=True,
            )
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"endpoint of cluster {self._cluster} not published: {error}") from error

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        try:
            endpoint_json = self._read_parameter(parameter(self._cluster, "coordinator"))
            return CoordinatorEndpoint.model_validate_json(endpoint_json) if endpoint_json is not None else None
        except ValidationError:
            return None
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"endpoint of cluster {self._cluster} not read: {error}") from error

    def report(self, report: JobReport) -> None:
        source = source_of(COORDINATOR_SOURCE, report.cluster)
        event_entry = {"Source": source, "DetailType": report.detail_type, "Detail": report.model_dump_json()}
        try:
            response = self._get_client("events").put_events(Entries=[event_entry])
        except (BotoCoreError, ClientError) as error:
            raise HostsError(f"report of cluster {self._cluster} not sent: {error}") from error
        if response["FailedEntryCount"]:
            raise HostsError(f"report of cluster {self._cluster} refused: {response['Entries'][0].get('ErrorMessage')}")
