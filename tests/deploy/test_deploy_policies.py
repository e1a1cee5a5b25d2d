"""Least privilege: what each role's policy allows is what its code really calls, as botocore sends it, against the
embedded cloud.

A story makes the code do all that it can do. Every call is recorded (botocore's own event) with the role whose function
makes it, and judged by that role's policy as IAM would judge it: action, resource, and the conditions on the tags that
the instance or group has at that moment.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from deploy_iam import ROLES, Recording, statements
from deploy_packages import ROOT
from deploy_roles import story
from dyntrain.controller.contract.job_files import JOB_TAG
from dyntrain.controller.contract.messages import OWNER_TAG, STATUS_TAG
from dyntrain.controller.contract.pool_policy import POOL_TAG

INFRASTRUCTURE = ("logs:", "xray:", "sqs:SendMessage")
# the event source's own calls
STREAM = {
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
}
READS = re.compile(r"\w+:(Get|BatchGet|Query|Describe|List)")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    with pytest.MonkeyPatch.context() as environment:
        return story(tmp_path_factory.mktemp("cloud"), environment.setenv)


def allowed(role: str) -> set[str]:
    return {
        action for entry in statements(role) for action in entry["Action"] if not action.startswith(INFRASTRUCTURE)
    } - STREAM


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_make_the_calls_that_its_functions_make_and_no_other(role: str, recording: Recording) -> None:
    assert {call.action for call in recording.calls if call.role == role} == allowed(role)


@pytest.mark.parametrize("role", ROLES)
def test_each_call_of_the_story_would_pass_iam_with_the_tags_that_its_instance_or_group_had(
    role: str, recording: Recording
) -> None:
    refused = {f"{call.action} on {call.resource}" for call in recording.calls if call.role == role and not call.passes}
    assert refused == set()


def test_what_is_not_owned_is_out_of_reach_of_every_call_that_changes_ec2_or_a_group(recording: Recording) -> None:
    """The same calls on instances and groups without tags. The status tag alone may go anywhere: people see it on what
    they tagged by hand.
    """
    changing = [
        call
        for call in recording.calls
        if call.action.startswith(("ec2:", "autoscaling:")) and not READS.match(call.action)
    ]
    passing = {(call.action, *call.tag_keys) for call in changing if call.passes_with({})}
    assert passing == {("ec2:CreateTags", STATUS_TAG)}
    assert {call.action for call in changing} >= {
        "ec2:TerminateInstances",
        "ec2:StopInstances",
        "autoscaling:SetDesiredCapacity",
    }


@pytest.mark.parametrize("role", ROLES)
def test_every_changing_statement_names_a_fixed_tag_and_never_leans_on_the_elastic_one(role: str) -> None:
    """Untagging removes the elastic tag: a condition on it would lock the controller out of just what it has to end."""
    for entry in statements(role):
        if any(action.startswith(("ec2:", "autoscaling:")) and not READS.match(action) for action in entry["Action"]):
            condition: dict[str, Any] = entry["Condition"]
            resource_tags = [key for test in condition.values() for key in test if key.startswith("aws:ResourceTag/")]
            assert not [key for key in resource_tags if "elastic-worker" in key], entry["Sid"]
            fixed = {f"aws:ResourceTag/{tag}" for tag in (OWNER_TAG, POOL_TAG, JOB_TAG)} & set(resource_tags)
            assert fixed or condition["ForAllValues:StringEquals"] == {"aws:TagKeys": [STATUS_TAG]}, entry["Sid"]


def test_every_function_has_one_of_the_recorded_roles() -> None:
    config = json.loads((ROOT / ".chalice" / "config.json").read_text())["lambda_functions"]
    assert {entry["iam_policy_file"] for entry in config.values()} == {f"policy-{role}.json" for role in ROLES}
