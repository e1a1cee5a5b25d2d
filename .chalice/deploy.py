"""Deploys a package into an account with CloudFormation, and removes it again. Both are safe to repeat.

up:   1. a private bucket for the stage's code, by account and region
      2. the zip under its digest
      3. a change set, executed unless it is empty
down: the stack, then the bucket; the facts table stays (its policy is Retain), for the operator to delete by hand

Uses the credentials, region and AWS_ENDPOINT_URL of the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.adapters.account import account_and_region
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.contract.errors import ControllerError

WAIT_SECONDS = 1200.0
POLL_SECONDS = 2.0
END_SUFFIXES = ("COMPLETE", "FAILED")
GOOD_STATUSES = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "IMPORT_COMPLETE")


class DeployFailed(Exception):
    """The deployment failed; one sentence says what, and what to do."""


def up(
    stack: str, package: Path, template: str = "sam.json", mail: str | None = None, wait_seconds: float = WAIT_SECONDS
) -> str:
    """Deploy the package; returns created, updated or unchanged.

    `template`: SAM, or `translated.json` if CloudFormation lacks the transform. `mail`: receiver of the alarms; "":
    none; None: unchanged.
    """
    archive = package / "deployment.zip"
    if not archive.is_file() or not (package / template).is_file():
        raise DeployFailed(f"there is no package in {package}: run make package first")
    _print_account(stack)
    account, bucket = code_bucket(stack)
    key = f"{hashlib.sha256(archive.read_bytes()).hexdigest()}.zip"
    _ensure_bucket(bucket, account)
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=archive.read_bytes(), ExpectedBucketOwner=account)
    template_json = json.dumps(with_code(json.loads((package / template).read_text(encoding="utf-8")), bucket, key))
    # a template in the call itself is limited to 51,200 bytes
    json_key = f"{hashlib.sha256(template_json.encode()).hexdigest()}.json"
    boto3.client("s3").put_object(Bucket=bucket, Key=json_key, Body=template_json.encode(), ExpectedBucketOwner=account)
    region = boto3.client("s3").meta.region_name
    url = f"https://{bucket}.s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}/{json_key}"
    return _change_stack(stack, url, mail, time.monotonic() + wait_seconds)


def down(stack: str, wait_seconds: float = WAIT_SECONDS) -> str:
    """Delete the stack; returns deleted or absent. Raises DeployFailed if something prevents it."""
    _print_account(stack)
    description = _stack(stack)
    if description is not None:
        _delete_stack(stack, description["StackId"], time.monotonic() + wait_seconds)
    account, bucket = code_bucket(stack)
    _delete_bucket(bucket, account)
    return "deleted" if description is not None else "absent"


def _print_account(stack: str) -> None:
    sys.stderr.write(f"{account_and_region(Clients())}: stack {stack}\n")


def code_bucket(stack: str) -> tuple[str, str]:
    """The account, and its bucket's name.

    Anybody may guess the name and own the bucket, so each call names the expected owner: CloudFormation would run a
    stranger's template with the right to create roles.
    """
    account = str(boto3.client("sts").get_caller_identity()["Account"])
    return account, f"{stack.lower()}-code-{account}-{boto3.client('s3').meta.region_name}"[:63]


def with_code(template: dict[str, Any], bucket: str, key: str) -> dict[str, Any]:
    """The template with every function's code at its place in the bucket, in SAM's form or CloudFormation's."""
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = {"Bucket": bucket, "Key": key}
        elif resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Code"] = {"S3Bucket": bucket, "S3Key": key}
    return template


def _delete_stack(stack: str, stack_id: str, deadline: float) -> None:
    """Delete the stack. `stack_id` identifies it until it is gone."""
    boto3.client("cloudformation").delete_stack(StackName=stack)
    while (description := _stack(stack_id)) is not None and description["StackStatus"] != "DELETE_COMPLETE":
        if description["StackStatus"].endswith("FAILED") or time.monotonic() > deadline:
            reason = description.get("StackStatusReason", "see its events")
            raise DeployFailed(f"stack {stack} is {description['StackStatus']}: {reason}")
        time.sleep(POLL_SECONDS)


def _change_stack(stack: str, url: str, mail: str | None, deadline: float) -> str:
    cloudformation = boto3.client("cloudformation")
    old_stack = _stack(stack)
    if (
        old_stack is not None and old_stack["StackStatus"] == "ROLLBACK_COMPLETE"
    ):  # after a failed creation it can only be deleted
        _delete_stack(stack, old_stack["StackId"], deadline)
        old_stack = None
    is_new_stack = old_stack is None or old_stack["StackStatus"] == "REVIEW_IN_PROGRESS"
    change_set = f"deploy-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"  # unique within a second
    cloudformation.create_change_set(
        StackName=stack,
        ChangeSetName=change_set,
        ChangeSetType="CREATE" if is_new_stack else "UPDATE",
        TemplateURL=url,
        Parameters=[_mail_parameter(old_stack, mail)],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    while (change := cloudformation.describe_change_set(StackName=stack, ChangeSetName=change_set))["Status"] not in (
        "CREATE_COMPLETE",
        "FAILED",
    ):
        _wait(deadline, stack, change["Status"])
    if change["Status"] == "FAILED":
        cloudformation.delete_change_set(StackName=stack, ChangeSetName=change_set)
        reason = change.get("StatusReason", "")
        if "didn't contain changes" in reason or "No updates are to be performed" in reason:
            return "unchanged"
        raise DeployFailed(f"CloudFormation refuses the change of {stack}: {reason}")
    # the token makes a repeated request, after a lost answer, succeed
    cloudformation.execute_change_set(StackName=stack, ChangeSetName=change_set, ClientRequestToken=change_set)
    while (stack_now := _stack(stack)) is None or not stack_now["StackStatus"].endswith(END_SUFFIXES):
        _wait(deadline, stack, stack_now["StackStatus"] if stack_now else "not there yet")
    if stack_now["StackStatus"] not in GOOD_STATUSES:
        raise DeployFailed(f"stack {stack} is {stack_now['StackStatus']}: see its events for the first failure")
    return "created" if is_new_stack else "updated"


def _mail_parameter(before: dict[str, Any] | None, mail: str | None) -> dict[str, Any]:
    """Parameter of the alarms' receiver; without it CloudFormation would use the default, nobody."""
    parameters = [entry["ParameterKey"] for entry in before.get("Parameters", [])] if before is not None else []
    if mail is None and "AlarmAddress" in parameters:
        return {"ParameterKey": "AlarmAddress", "UsePreviousValue": True}
    return {"ParameterKey": "AlarmAddress", "ParameterValue": mail or ""}


def _wait(deadline: float, stack: str, status: str) -> None:
    if time.monotonic() > deadline:
        raise DeployFailed(f"stack {stack} is still {status}; CloudFormation continues; run the command again to see")
    time.sleep(POLL_SECONDS)


def _stack(name: str) -> dict[str, Any] | None:
    try:
        description: dict[str, Any] = dict(boto3.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0])
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return description


def _ensure_bucket(bucket: str, account: str) -> None:
    s3 = boto3.client("s3")
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account)
        return
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise DeployFailed(
                f"the bucket {bucket} is not this account's, or not ours to use: {error}; give another STACK"
            ) from error
    bucket_location = (
        {}
        if s3.meta.region_name == "us-east-1"
        else {"CreateBucketConfiguration": {"LocationConstraint": s3.meta.region_name}}
    )
    s3.create_bucket(Bucket=bucket, **bucket_location)
    no_public_access = {
        "BlockPublicAcls": True,
        "IgnorePublicAcls": True,
        "BlockPublicPolicy": True,
        "RestrictPublicBuckets": True,
    }
    s3.put_public_access_block(
        Bucket=bucket, PublicAccessBlockConfiguration=no_public_access, ExpectedBucketOwner=account
    )


def _delete_bucket(bucket: str, account: str) -> None:
    s3 = boto3.client("s3")
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, ExpectedBucketOwner=account):
            for entry in page.get("Contents", []):
                s3.delete_object(Bucket=bucket, Key=entry["Key"], ExpectedBucketOwner=account)
        s3.delete_bucket(Bucket=bucket, ExpectedBucketOwner=account)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise


def main() -> int:
    """Deploy or remove a stack; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make deploy")
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--stack", required=True)
    parser.add_argument("--package", type=Path, help="the folder that make package wrote")
    parser.add_argument("--template", default="sam.json")
    parser.add_argument(
        "--mail", help="receiver of the alarms, whom AWS asks to confirm; default: unchanged; empty: nobody"
    )
    arguments = parser.parse_args()
    try:
        if arguments.what == "up" and arguments.package is None:
            raise DeployFailed("--package is missing")
        outcome = (
            up(arguments.stack, arguments.package, arguments.template, arguments.mail)
            if arguments.what == "up"
            else down(arguments.stack)
        )
    except (DeployFailed, ControllerError, BotoCoreError, ClientError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(f"stack {arguments.stack}: {outcome}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
