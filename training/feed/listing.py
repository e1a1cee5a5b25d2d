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

AT_ONCE = 16  # requests to S3: each is a round trip, and a channel may need thousands
Question = TypeVar("Question")
Answer = TypeVar("Answer")


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Raises ChannelError, which names `where`, for errors of S3 that no retry solves."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchBucket":
            raise ChannelError(f"{where}: there is no such bucket") from error
        if error.response["Error"]["Code"] == "NoSuchKey":
            raise ChannelError(f"{where}: it is not there") from error
        if error.response["Error"]["Code"] in ("AccessDenied", "403"):
            raise ChannelError(f"{where}: this machine's credentials may not read it") from error
        if error.response["Error"]["Code"] == "PermanentRedirect":
            raise ChannelError(f"{where}: its bucket is in another region than AWS_DEFAULT_REGION says") from error
        raise


def side_by_side(ask: Callable[[Question], Answer], of: Iterable[Question]) -> list[Answer]:
    """Call `ask` for each of `of` in parallel, and return the answers in that order. Raises the first one's error."""
    with ThreadPoolExecutor(AT_ONCE, "channel") as pool:
        return list(pool.map(ask, of))


def listed(s3: Any, source: str) -> list[S3Object]:
    """List s3://BUCKET/PREFIX, ordered by key, or s3://BUCKET/KEY,manifest in its order; each object once.

    Raises ChannelError, and botocore's errors.
    """
    bucket, rest = parsed(source)
    if source.endswith(MANIFEST):
        objects = _of_manifest(s3, bucket, rest)
    else:
        objects = sorted(_below(_of_prefix(s3, bucket, rest), rest), key=lambda one: one.key)
    return list(dict.fromkeys(objects))


def patiently_listed(s3: Any, source: str) -> list[S3Object]:
    """List as `listed`, with retries while S3 is unavailable. Raises ChannelError."""
    until, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            return listed(s3, source)
        except (BotoCoreError, ClientError) as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 503
            if status < 500 or time.monotonic() > until:
                raise ChannelError(f"{source} cannot be listed: {error}") from error
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def _of_prefix(s3: Any, bucket: str, prefix: str) -> list[S3Object]:
    with reading(f"s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            S3Object(bucket, one["Key"], one["Size"], one["ETag"]) for page in pages for one in page.get("Contents", [])
        ]


def _below(objects: list[S3Object], prefix: str) -> list[S3Object]:
    """Select the objects of a prefix: without its slash, those in that folder, else those whose names begin with it.

    S3 itself would list `train2/` for the prefix `train` too.
    """
    if not prefix or prefix.endswith("/"):
        return objects
    rests = {one: one.key.removeprefix(prefix) for one in objects}
    folder = [one for one, rest in rests.items() if rest.startswith("/")]
    return folder or [one for one, rest in rests.items() if "/" not in rest]


def _of_manifest(s3: Any, bucket: str, key: str) -> list[S3Object]:
    where = f"s3://{bucket}/{key}"
    with reading(where):
        content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    there, keys = manifest_of(content, where)

    def named(name: str) -> S3Object:
        entry = head(s3, there, name)
        if entry is None:
            raise ChannelError(f"{where} names s3://{there}/{name}, which is not there")
        return entry

    return side_by_side(named, keys)


def head(s3: Any, bucket: str, key: str) -> S3Object | None:
    """Look up one object; None if it does not exist."""
    try:
        with reading(f"s3://{bucket}/{key}"):
            response = s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] == "404":
            return None
        raise
    return S3Object(bucket, key, response["ContentLength"], response["ETag"])
