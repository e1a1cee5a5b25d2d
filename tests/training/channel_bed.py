"""A bucket with RecordIO objects, for the tests of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto_server import moto_server

KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
Environ = Callable[[str], None]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server("s3") as address:
        boto3.Session("x", "x", region_name="us-east-1").client("s3", endpoint_url=address).create_bucket(Bucket="data")
        yield address


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Environ:
    def through(endpoint: str) -> None:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)

    return through


@pytest.fixture
def s3(endpoint: str, through: Environ) -> Any:
    through(endpoint)
    client = boto3.Session("x", "x", region_name="us-east-1").client("s3", endpoint_url=endpoint)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="data"):
        for one in page.get("Contents", []):
            client.delete_object(Bucket="data", Key=one["Key"])
    return client


def write(s3: Any, folder: Path, parts: dict[str, list[bytes]], below: str = "sets/train/") -> dict[str, list[bytes]]:
    """By MXNet's own writer. Returns what its own reader reads."""
    import dyntrain.training.numpy_aliases  # noqa: F401

    import mxnet as mx  # isort: skip

    for name, records in parts.items():
        file = folder / f"{name}.rec"
        writer = mx.recordio.MXIndexedRecordIO(str(file.with_suffix(".idx")), str(file), "w")
        for key, record in enumerate(records):
            writer.write_idx(key, record)
        writer.close()
        for suffix in (".rec", ".idx"):
            s3.upload_file(str(file.with_suffix(suffix)), "data", f"{below}{name}{suffix}")
    return {name: list(whole(folder / f"{name}.rec")) for name in parts}


def whole(file: Path) -> Iterator[bytes]:
    import mxnet as mx

    reader = mx.recordio.MXRecordIO(str(file), "r")
    while (record := reader.read()) is not None:
        yield bytes(record)
