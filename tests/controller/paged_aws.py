"""An AWS that answers a few things a page, and writes down what it was asked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients

PAGE = 2
# Of each operation: where the things are, and the names of the token in the request and in the answer.
PAGED = {
    "DescribeInstances": ("Reservations", "NextToken", "NextToken"),
    "DescribeAutoScalingGroups": ("AutoScalingGroups", "NextToken", "NextToken"),
    "DescribeLaunchTemplates": ("LaunchTemplates", "NextToken", "NextToken"),
    "DescribeCapacityReservations": ("CapacityReservations", "NextToken", "NextToken"),
    "GetParametersByPath": ("Parameters", "NextToken", "NextToken"),
    "ListStackResources": ("StackResourceSummaries", "NextToken", "NextToken"),
    "DescribeLogStreams": ("logStreams", "nextToken", "nextToken"),
    "FilterLogEvents": ("events", "nextToken", "nextToken"),
    "Query": ("Items", "ExclusiveStartKey", "LastEvaluatedKey"),
    "Scan": ("Items", "ExclusiveStartKey", "LastEvaluatedKey"),
    "ListObjectsV2": ("Contents", "ContinuationToken", "NextContinuationToken"),
}
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class PagedAws:
    """`holds` is what each paged operation would list; `answers` are those of others, by the request. `refuses` says at
    which call of an operation, from 0 on, the answer is `code`.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "x-1")):
            patch.setenv(name, value)
        patch.setattr(
            BaseClient, "_make_api_call", lambda _client, operation, request: self._called(operation, request)
        )
        self.holds: dict[str, Sequence[Mapping[str, Any]]] = {}
        self.answers: dict[str, Answer] = {}
        self.refuses: dict[str, int] = {}
        self.code, self.status = "Throttling", 400
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.clients = _clients()

    def requests(self, operation: str) -> list[Mapping[str, Any]]:
        return [request for name, request in self.calls if name == operation]

    def _called(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        number = len(self.requests(operation))
        self.calls.append((operation, request))
        if self.refuses.get(operation) == number:
            error: Any = {
                "Error": {"Code": self.code, "Message": "no"},
                "ResponseMetadata": {"HTTPStatusCode": self.status},
            }
            raise ClientError(error, operation)
        if operation in self.answers:
            return self.answers[operation](request)
        if operation not in PAGED:
            return {}
        where, into, out = PAGED[operation]
        start = int(_plain(request.get(into, 0)))
        things = self.holds.get(operation, ())
        page: dict[str, Any] = {where: list(things[start : start + PAGE])}
        if start + PAGE < len(things):
            page |= {out: _token(operation, start + PAGE), "IsTruncated": True}
        return page


@functools.cache
def _clients() -> Clients:
    """To read what EC2 can do takes longer than all tests of a file."""
    return Clients("http://127.0.0.1:9")


def _token(operation: str, start: int) -> Any:
    return {"pk": {"S": str(start)}} if operation in ("Query", "Scan") else str(start)


def _plain(token: Any) -> Any:
    return token["pk"]["S"] if isinstance(token, dict) else token
