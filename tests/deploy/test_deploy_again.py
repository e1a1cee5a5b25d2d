"""`make deploy` once more: what would break for a user is alarms that nobody gets any more, or a first creation that
has failed and cannot be repeated.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

DEPLOY = runpy.run_path(str(Path(__file__).parents[2] / ".chalice" / "deploy.py"))


class Stacks:
    """CloudFormation with one stack, or none, whose changes succeed."""

    def __init__(self, status: str | None, parameters: tuple[str, ...] = ("AlarmAddress",)) -> None:
        self.status, self.parameters = status, parameters
        self.changes: list[dict[str, Any]] = []
        self.deleted = 0

    def describe_stacks(self, StackName: str) -> dict[str, Any]:  # noqa: N803
        if self.status is None:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "it does not exist"}}, "DescribeStacks")
        known = [{"ParameterKey": name, "ParameterValue": "ops@example.org"} for name in self.parameters]
        return {"Stacks": [{"StackId": "arn", "StackStatus": self.status, "Parameters": known}]}

    def delete_stack(self, StackName: str) -> None:  # noqa: N803
        self.status, self.deleted = None, self.deleted + 1

    def create_change_set(self, **request: Any) -> None:
        self.changes.append(request)

    def describe_change_set(self, **_: str) -> dict[str, str]:
        return {"Status": "CREATE_COMPLETE"}

    def execute_change_set(self, **_: str) -> None:
        self.status = "CREATE_COMPLETE" if self.status is None else "UPDATE_COMPLETE"


def changed(patch: pytest.MonkeyPatch, stacks: Stacks, mail: str | None = None) -> tuple[str, dict[str, Any]]:
    patch.setattr(boto3, "client", lambda _name: stacks)
    done = DEPLOY["_change_stack"]("dyntrain-prod", "https://there", mail, float("inf"))
    return done, stacks.changes[-1]


@pytest.mark.parametrize(
    ("mail", "expected"),
    [
        (None, {"UsePreviousValue": True}),
        ("", {"ParameterValue": ""}),
        ("new@example.org", {"ParameterValue": "new@example.org"}),
    ],
)
def test_who_gets_the_alarms_goes_on_getting_them_unless_another_one_is_named(
    monkeypatch: pytest.MonkeyPatch, mail: str | None, expected: dict[str, Any]
) -> None:
    done, request = changed(monkeypatch, Stacks("CREATE_COMPLETE"), mail)
    assert (done, request["ChangeSetType"]) == ("updated", "UPDATE")
    assert request["Parameters"] == [{"ParameterKey": "AlarmAddress", **expected}]


@pytest.mark.parametrize("stacks", [Stacks(None), Stacks("UPDATE_COMPLETE", parameters=())], ids=["new", "of before"])
def test_where_there_is_no_earlier_address_nobody_gets_them(monkeypatch: pytest.MonkeyPatch, stacks: Stacks) -> None:
    _done, request = changed(monkeypatch, stacks)
    assert request["Parameters"] == [{"ParameterKey": "AlarmAddress", "ParameterValue": ""}]


def test_a_first_creation_that_has_failed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = Stacks("ROLLBACK_COMPLETE")
    done, request = changed(monkeypatch, stacks)
    assert (done, request["ChangeSetType"], stacks.deleted) == ("created", "CREATE", 1)
    assert request["Parameters"] == [{"ParameterKey": "AlarmAddress", "ParameterValue": ""}]


@pytest.mark.parametrize("status", ["UPDATE_ROLLBACK_COMPLETE", "CREATE_COMPLETE", "REVIEW_IN_PROGRESS"])
def test_no_other_stack_is_deleted_for_that(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    stacks = Stacks(status)
    changed(monkeypatch, stacks)
    assert stacks.deleted == 0
