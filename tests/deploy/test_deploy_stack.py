"""`make deploy` and `make destroy` against moto's CloudFormation, as far as that goes.

What it cannot do: it has no `AWS::Serverless` transform, so of the SAM template it makes the table and queue and no
function (asserted below), and the translated template is deployed besides; nothing runs in its Lambda; it checks no IAM
condition; it leaves out resource types that it does not know (asserted by name); its change sets are never empty, so
`unchanged` is not seen here. AWS's own answer to a SAM change set is not seen either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import pytest
from deploy_packages import ROOT, run, template
from moto_server import moto_server

STACK = "dyntrain-under-test"
TABLES = "/dyntrain/-stage-/prod/tables"
UNKNOWN_TO_MOTO = {
    "AWS::CloudWatch::Alarm",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::SNS::Subscription",
    "AWS::SQS::QueuePolicy",
}
UNKNOWN_AS_SAM = (UNKNOWN_TO_MOTO - {"AWS::Lambda::EventInvokeConfig"}) | {"AWS::Serverless::Function"}


@pytest.fixture
def cloud() -> Iterator[dict[str, str]]:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with moto_server("cloudformation", "dynamodb", "s3", "ssm", "sts") as endpoint:
        yield {**os.environ, **keys, "AWS_ENDPOINT_URL": endpoint}


def resources_of(cloudformation: Any) -> set[str]:
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=STACK)
    return {entry["LogicalResourceId"] for page in pages for entry in page["StackResourceSummaries"]}


@pytest.mark.parametrize(("form", "not_there"), [("sam.json", UNKNOWN_AS_SAM), ("translated.json", UNKNOWN_TO_MOTO)])
def test_a_stack_is_made_by_a_change_set_and_taken_away_twice_and_its_table_stays(
    package: Path, cloud: dict[str, str], form: str, not_there: set[str]
) -> None:
    """`sam.json` is what `make deploy` gives CloudFormation."""
    program = ROOT / ".chalice" / "deploy.py"
    up = (
        sys.executable,
        program,
        "up",
        "--stack",
        STACK,
        "--package",
        package,
        "--template",
        form,
        "--mail",
        "ops@example.org",
    )
    created = run(*up, env=cloud)
    assert (created.returncode, created.stdout) == (0, f"stack {STACK}: created\n"), created.stderr
    session = boto3.Session("x", "x", region_name="us-east-1")
    cloudformation, s3, dynamodb = (
        session.client(name, endpoint_url=cloud["AWS_ENDPOINT_URL"]) for name in ("cloudformation", "s3", "dynamodb")
    )
    assert {change["ExecutionStatus"] for change in cloudformation.list_change_sets(StackName=STACK)["Summaries"]} == {
        "EXECUTE_COMPLETE"
    }
    wanted = template(package, form)["Resources"]
    assert {wanted[name]["Type"] for name in set(wanted) - resources_of(cloudformation)} == not_there
    (table,) = [name for name in dynamodb.list_tables()["TableNames"] if name.startswith(STACK)]
    pattern = session.client("ssm", endpoint_url=cloud["AWS_ENDPOINT_URL"]).get_parameter(Name=TABLES)["Parameter"]
    assert fnmatchcase(table, pattern["Value"]), "the nodes' roles reach the table by this"
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "node#i-1"}, "sk": {"S": "facts"}})
    again = run(*up, env=cloud)
    assert again.returncode == 0, again.stderr
    gone = [run(sys.executable, program, "down", "--stack", STACK, env=cloud) for _ in range(2)]
    assert [done.stdout for done in gone] == [f"stack {STACK}: deleted\n", f"stack {STACK}: absent\n"], gone[0].stderr
    assert s3.list_buckets()["Buckets"] == []
    assert dynamodb.scan(TableName=table)["Count"] == 1, "the facts outlive the stack"
    dynamodb.delete_table(TableName=table)


def test_deploying_without_a_package_is_one_line(cloud: dict[str, str], tmp_path: Path) -> None:
    done = run(
        sys.executable, ROOT / ".chalice" / "deploy.py", "up", "--stack", STACK, "--package", tmp_path, env=cloud
    )
    assert (done.returncode, done.stderr) == (1, f"Error: there is no package in {tmp_path}: run make package first\n")
