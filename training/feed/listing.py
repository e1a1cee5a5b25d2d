"""Lists the S3 objects below a prefix, or in a manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.training.feed.places import MANIFEST, ChannelError, S3Object, bucket_and_prefix, manifest_of
from dyntrain.training.feed.stream import LONGEST_PAUSE_SECONDS, PATIENCE_SECONDS

PARALLEL_REQUESTS = 16  # parallel requests to S3: a channel may need thousands, each a round trip
Question = TypeVar("Question")
Answer = TypeVar("Answer")


@contextmanager
def translated_s3_errors(address: object) -> Iterator[None]:
    """Raise ChannelError, with `address` in the message, in place of S3 errors that no retry solves."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchBucket":
            raise ChannelError(f"{address}: this bucket does not exist") from error
        if error.response["Error"]["Code"] == "NoSuchKey":
            raise ChannelError(f"{address}: this S3 object does not exist") from error
        if error.response["Error"]["Code"] in ("AccessDenied", "403"):
            raise ChannelError(f"{address}: this machine's credentials do not allow reading it") from error
        if error.response["Error"]["Code"] == "PermanentRedirect":
            raise ChannelError(f"{address}: its bucket is in another region than AWS_DEFAULT_REGION says") from error
        raise


def in_parallel(ask: Callable[[Question], Answer], questions: Iterable[Question]) -> list[Answer]:
    """Call `ask` with each of `questions` in parallel.

    Returns the answers in the order of the questions. If any call fails, raises the error of the first question whose
    call failed.
    """
    with ThreadPoolExecutor(PARALLEL_REQUESTS, "channel") as pool:
        return list(pool.map(ask, questions))


def list_objects(s3: Any, source: str) -> list[S3Object]:
    """List the objects of s3://BUCKET/PREFIX by key, or of s3://BUCKET/KEY,manifest in the manifest's order.

    Each object is listed only once.

    Raises ChannelError, or an error of botocore.
    """
    bucket, key = bucket_and_prefix(source)
    if source.endswith(MANIFEST):
        objects = _objects_in_manifest(s3, bucket, key)
    else:
        objects = sorted(_objects_of_prefix(_objects_below_prefix(s3, bucket, key), key), key=lambda item: item.key)
    return list(dict.fromkeys(objects))


def list_objects_patiently(s3: Any, source: str) -> list[S3Object]:
    """List objects like `list_objects`, but retry while S3 is unavailable. Raises ChannelError."""
    deadline, pause_seconds = time.monotonic() + PATIENCE_SECONDS, 0.1
    while True:
        try:
            return list_objects(s3, source)
        except (BotoCoreError, ClientError) as error:
            http_status = (
                error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 503
            )
            if http_status < 500 or time.monotonic() > deadline:
                raise ChannelError(f"{source} cannot be listed: {error}") from error
        time.sleep(pause_seconds)
        pause_seconds = min(LONGEST_PAUSE_SECONDS, pause_seconds * 2)


def _objects_below_prefix(s3: Any, bucket: str, prefix: str) -> list[S3Object]:
    with translated_s3_errors(f"s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            S3Object(bucket, item["Key"], item["Size"], item["ETag"])
            for page in pages
            for item in page.get("Contents", [])
        ]


def _objects_of_prefix(objects: list[S3Object], prefix: str) -> list[S3Object]:
    """Select the objects that belong to a prefix.

    A prefix `train` without a final slash selects the objects of the folder `train/`, or if there is no such folder the
    objects whose keys begin with `train` and have no further slash.

    S3 itself would also list the objects in `train2/` for the prefix `train`.
    """
    if not prefix or prefix.endswith("/"):
        return objects
    suffixes = {item: item.key.removeprefix(prefix) for item in objects}
    folder_items = [item for item, suffix in suffixes.items() if suffix.startswith("/")]
    return folder_items or [item for item, suffix in suffixes.items() if "/" not in suffix]


def _objects_in_manifest(s3: Any, bucket: str, key: str) -> list[S3Object]:
    address = f"s3://{bucket}/{key}"
    with translated_s3_errors(address):
        manifest_bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    keys_bucket, object_keys = manifest_of(manifest_bytes, address)

    def existing_object(key: str) -> S3Object:
        found_object = look_up_object(s3, keys_bucket, key)
        if found_object is None:
            raise ChannelError(f"{address} names s3://{keys_bucket}/{key}, which does not exist")
        return found_object

    return in_parallel(existing_object, object_keys)


def look_up_object(s3: Any, bucket: str, key: str) -> S3Object | None:
    """Look up one object in S3. Returns None if the object does not exist."""
    try:
        with translated_s3_errors(f"s3://{bucket}/{key}"):
            response = s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] == "404":
            return None
        raise
    return S3Object(bucket, key, response["ContentLength"], response["ETag"])
