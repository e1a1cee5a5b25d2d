"""`make deploy` and `make destroy` against moto's CloudFormation, as far as that goes.

What it cannot do: it has no `AWS::Serverless` transform, so the translated template is deployed; nothing runs in its Lambda; it checks no
IAM condition; it leaves out resource types that it does not know (asserted below by name). AWS's own answer to a SAM change set is not seen here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from deploy_packages import ROOT, run, template
from moto.server import ThreadedMotoServer

STACK = "dyntrain-under-test"
UNKNOWN_TO_MOTO = {"AWS::CloudWatch::Alarm", "AWS::Lambda::EventInvokeConfig", "AWS::SQS::QueuePolicy"}


@pytest.fixture
def cloud() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    yield {**os.environ, **keys, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    server.stop()


def test_a_stack_is_made_updated_and_taken_away_and_its_facts_stay(package: Path, cloud: dict[str, str]) -> None:
    program = ROOT / ".chalice" / "deploy.py"
    up = (sys.executable, program, "up", "--stack", STACK, "--package", package, "--template", "translated.json")
    made = run(*up, env=cloud)
    assert (made.returncode, made.stdout) == (0, f"stack {STACK}: created\n"), made.stderr
    session = boto3.Session("x", "x", region_name="us-east-1")
    cloudformation, s3 = (session.client(name, endpoint_url=cloud["AWS_ENDPOINT_URL"]) for name in ("cloudformation", "s3"))
    wanted = template(package, "translated.json")["Resources"]
    there = {
        entry["LogicalResourceId"]
        for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=STACK)
        for entry in page["StackResourceSummaries"]
    }
    missing = {wanted[name]["Type"] for name in set(wanted) - there if "Condition" not in wanted[name]}
    assert missing == UNKNOWN_TO_MOTO
    again = run(*up, env=cloud)
    assert again.returncode == 0, again.stderr
    gone = [run(sys.executable, program, "down", "--stack", STACK, env=cloud) for _ in range(2)]
    assert [done.stdout for done in gone] == [f"stack {STACK}: deleted\n", f"stack {STACK}: absent\n"], gone[0].stderr
    assert s3.list_buckets()["Buckets"] == []


def test_deploying_without_a_package_is_one_line(cloud: dict[str, str], tmp_path: Path) -> None:
    done = run(sys.executable, ROOT / ".chalice" / "deploy.py", "up", "--stack", STACK, "--package", tmp_path, env=cloud)
    assert (done.returncode, done.stderr) == (1, f"Error: there is no package in {tmp_path}: run make package first\n")
