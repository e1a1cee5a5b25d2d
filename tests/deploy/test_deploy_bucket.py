"""The bucket for the stage's code: its name can be guessed, so a stranger may have made it."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from deploy_packages import ROOT
from moto_server import moto_server

STACK = "dyntrain-of-bucket"
OWNERLESS = {"CreateBucket"}  # has no such parameter: what it makes is the caller's


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Each call to S3 with its parameters, as botocore gets them."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()
    requests: list[tuple[str, dict[str, Any]]] = []

    def seen(params: dict[str, Any], model: Any, **_: Any) -> None:
        requests.append((model.name, dict(params)))

    assert boto3.DEFAULT_SESSION is not None
    boto3.DEFAULT_SESSION.events.register("provide-client-params.s3", seen)
    with moto_server("s3", "sts") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield requests
    boto3.setup_default_session()


@pytest.fixture
def deploy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy", ROOT / ".chalice" / "deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_package(folder: Path) -> Path:
    (folder / "deployment.zip").write_bytes(b"code")
    parameters = {"AlarmAddress": {"Type": "String", "Default": ""}}
    queue = {"Type": "AWS::SQS::Queue"}
    (folder / "sam.json").write_text(json.dumps({"Parameters": parameters, "Resources": {"Queue": queue}}))
    return folder


def test_every_call_on_the_bucket_says_whose_it_has_to_be(
    calls: list[tuple[str, dict[str, Any]]], deploy: ModuleType, tmp_path: Path
) -> None:
    assert deploy.up(STACK, a_package(tmp_path)) == "created"
    assert deploy.down(STACK) == "deleted"
    assert {name for name, _ in calls} >= {"HeadBucket", "CreateBucket", "PutObject", "DeleteObject", "DeleteBucket"}
    assert [name for name, given in calls if "ExpectedBucketOwner" not in given and name not in OWNERLESS] == []
    assert {given.get("ExpectedBucketOwner", "123456789012") for _, given in calls} == {"123456789012"}


def test_a_change_whose_answer_got_lost_may_be_asked_for_again(
    calls: list[tuple[str, dict[str, Any]]], deploy: ModuleType, tmp_path: Path
) -> None:
    """botocore does so by itself. Without a token of the change's own AWS refuses the second as one under way."""
    tokens: list[str | None] = []
    assert boto3.DEFAULT_SESSION is not None
    boto3.DEFAULT_SESSION.events.register(
        "provide-client-params.cloudformation.ExecuteChangeSet",
        lambda params, **_: tokens.append(params.get("ClientRequestToken")),
    )
    for _ in range(2):  # made, taken away, and made again
        assert deploy.up(STACK, a_package(tmp_path)) == "created"
        assert deploy.down(STACK) == "deleted"
    assert all(tokens)
    assert len(set(tokens)) == 2, "each change has its own"


def test_nothing_is_put_into_a_bucket_of_somebody_else(
    calls: list[tuple[str, dict[str, Any]]], deploy: ModuleType, tmp_path: Path
) -> None:
    """S3 answers 403 where the owner is another account. moto does not look, so the session answers for it."""

    class Nothing(io.BytesIO):
        def stream(self) -> Iterator[bytes]:
            yield b""

    assert boto3.DEFAULT_SESSION is not None
    boto3.DEFAULT_SESSION.events.register(
        "before-send.s3.HeadBucket", lambda request, **_: AWSResponse(request.url, 403, {}, Nothing())
    )
    with pytest.raises(deploy.DeployFailed, match="is not this account's"):
        deploy.up(STACK, a_package(tmp_path))
    assert [name for name, _ in calls] == ["HeadBucket"]
