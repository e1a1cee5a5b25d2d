"""What a node takes from its bucket and puts there, by an S3 of a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import EndpointConnectionError
from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, Exit
from dyntrain.node_bootstrap.job.bucket import Bucket
from moto import mock_aws


class S3:
    """`refused` maps a key's last part to what its uploads raise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refused: dict[str, Exception] = {}

    def get_paginator(self, method: str) -> S3:
        return self

    def paginate(self, **request: str) -> Iterator[dict[str, Any]]:
        yield {"Contents": [{"Key": key} for key in sorted(self.objects) if key.startswith(request["Prefix"])]}

    def download_file(self, bucket: str, key: str, path: str) -> None:
        Path(path).write_bytes(self.objects[key])

    def upload_file(self, path: str, bucket: str, key: str) -> None:
        if error := self.refused.get(Path(path).name):
            raise error
        self.objects[key] = Path(path).read_bytes()


def node(s3: S3) -> Bucket:
    return Bucket(s3, "anybodys-jobs", "mnist", "0123456789ab-2")


def test_of_two_nodes_that_tell_how_the_job_ended_the_first_is_believed() -> None:
    first = Exit(FAILED, 1, 3, "the command of rank 1 ended with exit code 3", 5.0, "Traceback")
    with mock_aws():
        s3 = boto3.client("s3", "us-east-1", aws_access_key_id="nobody", aws_secret_access_key="nobody")
        s3.create_bucket(Bucket="anybodys-jobs")
        one, other = (Bucket(s3, "anybodys-jobs", "mnist", "0123456789ab-2") for _ in range(2))
        assert one.verdict() is None
        one.write_verdict(first)
        other.write_verdict(Exit(INTERRUPTED, 0, None, "EC2 takes back the Spot instance of rank 0", 6.0))
        assert one.verdict() == other.verdict() == first


def test_a_rank_that_resumes_does_not_put_old_copies_over_what_another_has_saved_since(tmp_path: Path) -> None:
    s3 = S3()
    s3.objects["mnist/artifacts/deep/epoch-1"] = b"7"
    mine, others = node(s3), node(s3)
    assert mine.fetch_artifacts(tmp_path / "0") == others.fetch_artifacts(tmp_path / "1") == 1
    (tmp_path / "1/deep/epoch-1").write_text("eight")
    assert others.save_artifacts(tmp_path / "1") == 1
    assert mine.save_artifacts(tmp_path / "0") == 0
    assert s3.objects["mnist/artifacts/deep/epoch-1"] == b"eight"
    (tmp_path / "0/deep/epoch-1").write_text("and mine")
    assert mine.save_artifacts(tmp_path / "0") == 1, "what this rank changes is saved"


def test_one_file_that_cannot_be_saved_keeps_no_other_from_being_saved_and_is_told(tmp_path: Path) -> None:
    s3 = S3()
    for name in ("a.tmp", "b", "c"):
        (tmp_path / name).write_text(name)
    s3.refused = {"a.tmp": FileNotFoundError("a.tmp"), "b": S3UploadFailedError("b is refused")}
    saving = node(s3)
    with pytest.raises(S3UploadFailedError, match="b is refused"):
        saving.save_artifacts(tmp_path)
    assert s3.objects == {"mnist/artifacts/c": b"c"}
    s3.refused = {"a.tmp": FileNotFoundError("a.tmp")}
    assert saving.save_artifacts(tmp_path) == 1, "a file that was renamed meanwhile is no problem"
    assert sorted(s3.objects) == ["mnist/artifacts/b", "mnist/artifacts/c"]


def test_without_a_network_not_every_file_is_waited_for(tmp_path: Path) -> None:
    s3 = S3()
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    s3.refused = {"a": EndpointConnectionError(endpoint_url="https://s3")}
    with pytest.raises(EndpointConnectionError):
        node(s3).save_artifacts(tmp_path)
    assert s3.objects == {}
