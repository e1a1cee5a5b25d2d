"""Lists the objects below a prefix, or in a manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.training.feed.places import MANIFEST, ChannelError, S3Object, manifest_of, parsed
from dyntrain.training.feed.stream import LONGEST_PAUSE, PATIENCE

PARALLEL_REQUESTS = 16  # parallel requests to S3: a channel may need thousands, each a round trip
Question = TypeVar("Question")
Answer = TypeVar("Answer")


@contextmanager
def reading(address: object) -> Iterator[None]:
    """Raise ChannelError, which names `address`, for errors of S3 that no retry solves."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchBucket":
            raise ChannelError(f"{address}: there is no such bucket") from error
        if error.response["Error"]["Code"] == "NoSuchKey":
            raise ChannelError(f"{address}: this object does not exist") from error
        if error.response["Error"]["Code"] in ("AccessDenied", "403"):
            raise ChannelError(f"{address}: this machine's credentials do not allow reading it") from error
        if error.response["Error"]["Code"] == "PermanentRedirect":
            raise ChannelError(f"{address}: its bucket is in another region than AWS_DEFAULT_REGION says") from error
        raise


def in_parallel(ask: Callable[[Question], Answer], questions: Iterable[Question]) -> list[Answer]:
    """Call `ask` with each of `questions` in parallel; return the answers in order. Raises the first error in order."""
    with ThreadPoolExecutor(PARALLEL_REQUESTS, "channel") as pool:
        return list(pool.map(ask, questions))


def listed(s3: Any, source: str) -> list[S3Object]:
    """List s3://BUCKET/PREFIX, ordered by key, or s3://BUCKET/KEY,manifest in the manifest's order; each object once.

    Raises ChannelError, and botocore's errors.
    """
    bucket, key = parsed(source)
    if source.endswith(MANIFEST):
        objects = _of_manifest(s3, bucket, key)
    else:
        objects = sorted(_matching(_of_prefix(s3, bucket, key), key), key=lambda item: item.key)
    return list(dict.fromkeys(objects))


def patiently_listed(s3: Any, source: str) -> list[S3Object]:
    """List as `listed`, with retries while S3 is unavailable. Raises ChannelError."""
    deadline, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            return listed(s3, source)
        except (BotoCoreError, ClientError) as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 503
            if status < 500 or time.monotonic() > deadline:
                raise ChannelError(f"{source} cannot be listed: {error}") from error
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def _of_prefix(s3: Any, bucket: str, prefix: str) -> list[S3Object]:
    with reading(f"s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            S3Object(bucket, item["Key"], item["Size"], item["ETag"])
            for page in pages
            for item in page.get("Contents", [])
        ]


def _matching(objects: list[S3Object], prefix: str) -> list[S3Object]:
    """Select a prefix's objects. Without a final slash, these are in the folder of that name, or begin with that name.

    S3 itself would list `train2/` for the prefix `train` too.
    """
    if not prefix or prefix.endswith("/"):
        return objects
    suffixes = {item: item.key.removeprefix(prefix) for item in objects}
    folder = [item for item, suffix in suffixes.items() if suffix.startswith("/")]
    return folder or [item for item, suffix in suffixes.items() if "/" not in suffix]


def _of_manifest(s3: Any, bucket: str, key: str) -> list[S3Object]:
    address = f"s3://{bucket}/{key}"
    with reading(address):
        content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    keys_bucket, keys = manifest_of(content, address)

    def named(name: str) -> S3Object:
        entry = head(s3, keys_bucket, name)
        if entry is None:
            raise ChannelError(f"{address} names s3://{keys_bucket}/{name}, which does not exist")
        return entry

    return in_parallel(named, keys)


def head(s3: Any, bucket: str, key: str) -> S3Object | None:
    """Look up one object; None if the object does not exist."""
    try:
        with reading(f"s3://{bucket}/{key}"):
            response = s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] == "404":
            return None
        raise
    return S3Object(bucket, key, response["ContentLength"], response["ETag"])
