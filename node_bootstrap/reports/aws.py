"""Access to the AWS services that a node calls: Parameter Store and EventBridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.messages import NODE_SOURCE, source_of
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.training.host.aws import SETTINGS, session

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_ssm import SSMClient


class SsmParameters:
    """Reads parameters from AWS's Parameter Store (SSM)."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: SSMClient | None = None

    def get(self, *names: str) -> Mapping[str, str]:
        try:
            if self._client is None:
                self._client = session(self._region).client("ssm", config=SETTINGS)
            parameters_answer = self._client.get_parameters(Names=list(names), WithDecryption=True)
            return {parameter["Name"]: parameter["Value"] for parameter in parameters_answer["Parameters"]}
        except (BotoCoreError, ClientError) as error:
            raise ServiceUnavailable(f"cannot read the parameters {', '.join(names)}: {error}") from error


class EventBridgeReports:
    """Sends reports to the default event bus of the AWS account."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: EventBridgeClient | None = None

    def put(self, report: NodeReport) -> None:
        try:
            if self._client is None:
                self._client = session(self._region).client("events", config=SETTINGS)
            events_answer = self._client.put_events(
                Entries=[
                    {
                        "Source": source_of(NODE_SOURCE, report.cluster),
                        "DetailType": report.detail_type,
                        "Detail": report.model_dump_json(),
                        "Resources": [report.instance_id],
                    }
                ]
            )
        except (BotoCoreError, ClientError) as error:
            raise ServiceUnavailable(f"cannot report {report.outcome}: {error}") from error
        if events_answer["FailedEntryCount"]:
            failed_entry = events_answer["Entries"][0]
            raise ServiceUnavailable(
                f"cannot report {report.outcome}: {failed_entry.get('ErrorCode')}: {failed_entry.get('ErrorMessage')}"
            )
