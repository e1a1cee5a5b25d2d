"""Read log lines from CloudWatch Logs, which also keeps the lines of terminated machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors

STREAMS_PER_CALL = 100  # streams in one call of FilterLogEvents
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html


@dataclass(frozen=True)
class LogLine:
    """One event in CloudWatch Logs. An event has the same `id` each time the event is read."""

    at: float  # the event's time
    stream: str  # the name of the log stream
    text: str  # the event's message
    id: str = ""  # identifies the event


class CloudWatchLogs:
    def __init__(self, clients: Clients) -> None:
        self._client: Any = clients.logs()

    def streams(self, group: str, prefix: str) -> list[str]:
        """The names of the log group's streams that begin with `prefix`. The list is empty if the log group does not
        exist.
        """
        with translated_errors(f"listing the log streams of {group}"):
            try:
                pages = self._client.get_paginator("describe_log_streams").paginate(
                    logGroupName=group, logStreamNamePrefix=prefix
                )
                return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
            except self._client.exceptions.ClientError as error:
                if error_code(error) == "ResourceNotFoundException":
                    return []
                raise

    def lines(self, group: str, streams: Sequence[str], since: float) -> Iterator[LogLine]:
        """Yield the log lines of the streams since the time `since`. The streams are read in batches of 100, and the
        lines of a batch are yielded oldest first.
        """
        for start in range(0, len(streams), STREAMS_PER_CALL):
            with translated_errors(f"reading the logs of {group}"):
                pages = self._client.get_paginator("filter_log_events").paginate(
                    logGroupName=group,
                    logStreamNames=list(streams[start : start + STREAMS_PER_CALL]),
                    startTime=int(since * 1000),
                )
                for page in pages:
                    for event in page["events"]:
                        yield LogLine(
                            event["timestamp"] / 1000, event["logStreamName"], event["message"], event["eventId"]
                        )
