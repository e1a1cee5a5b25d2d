"""Which objects a channel has, in the one order that all workers agree on."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import ClientError

DATA, INDEX = ".rec", ".idx"
VARIABLE = "DYNTRAIN_CHANNEL_"  # and the channel's name in capitals: where it lies
ROOT_VARIABLE = "DYNTRAIN_CHANNELS"  # below which each channel is a folder of its name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # SageMaker's, without the dot, which no variable can have
# also the names that us-east-1 gave before 2018: docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_SOURCE = re.compile(r"s3://([A-Za-z0-9._-]{3,255})(?:/(.*))?", re.DOTALL)
MANIFEST = ",manifest"
AT_ONCE = 16  # questions to S3, each a round trip, of which a channel may need thousands
log = logging.getLogger(__name__)


Asked = TypeVar("Asked")
Told = TypeVar("Told")


class ChannelError(RuntimeError):
    """What a person has to see to; the message says what."""


@dataclass(frozen=True)
class S3Object:
    bucket: str
    key: str
    size: int
    etag: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def variable(name: str) -> str:
    """Raises ChannelError for what is no channel's name."""
    if not _NAME.fullmatch(name):
        raise ChannelError(f"{name!r} is no name of a channel: letters, digits, - and _, at most 64")
    return VARIABLE + name.upper().replace("-", "_")


def source_of(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Raises ChannelError when nobody said where the channel lies."""
    if found := environment.get(variable(name)):
        return found
    if root := environment.get(ROOT_VARIABLE):
        return f"{root.rstrip('/')}/{name}/"
    raise ChannelError(
        f"channel {name}: nobody says where it lies: dyntrain launch --channel {name}=s3://BUCKET/PREFIX/ does, on a "
        f"cluster DataBucket and DataPrefix of its template, or the variable {variable(name)}"
    )


def checked_source(source: str) -> str:
    """Raises ChannelError for what names no place in S3."""
    _parsed(source.removesuffix(MANIFEST))
    return source


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Raises ChannelError, with the place, for what S3 says of it and no waiting mends."""
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


def side_by_side(ask: Callable[[Asked], Told], of: Iterable[Asked]) -> list[Told]:
    """In the order of what was asked. Raises what `ask` raises of the first that failed."""
    with ThreadPoolExecutor(AT_ONCE, "channel") as pool:
        return list(pool.map(ask, of))


def objects_of(s3: Any, source: str) -> list[tuple[S3Object, S3Object]]:
    """Each data object that has a byte with its index, ordered by key. `source` is s3://BUCKET/PREFIX, or
    s3://BUCKET/KEY,manifest. Writers of shards leave empty ones: they are passed over, with a warning. Raises
    ChannelError, and what botocore raises.
    """
    bucket, rest = _parsed(source.removesuffix(MANIFEST))
    manifest = source.endswith(MANIFEST)
    listed = _of_manifest(s3, bucket, rest) if manifest else _below(_listed(s3, bucket, rest), rest)
    found = {(one.bucket, one.key): one for one in listed}
    data = sorted((one for one in found.values() if one.key.endswith(DATA)), key=lambda one: (one.bucket, one.key))
    if not data:
        raise ChannelError(f"{source}: there is no object whose name ends with {DATA}")
    if empty := [one for one in data if not one.size]:
        log.warning("%s: passed over, as they are empty: %s", source, ", ".join(one.key for one in empty))
        data = [one for one in data if one.size]
    if not data:
        raise ChannelError(f"{source}: all its objects are empty")
    return list(zip(data, side_by_side(lambda one: _index_of(s3, one, found), data), strict=True))


def _listed(s3: Any, bucket: str, prefix: str) -> list[S3Object]:
    with reading(f"s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            S3Object(bucket, one["Key"], one["Size"], one["ETag"]) for page in pages for one in page.get("Contents", [])
        ]


def _below(listed: list[S3Object], prefix: str) -> list[S3Object]:
    """Of a prefix without its slash: what is in that folder; where there is none, the objects whose names begin so. S3
    would give `train2/` for `train` too.
    """
    if not prefix or prefix.endswith("/"):
        return listed
    rests = {one: one.key.removeprefix(prefix) for one in listed}
    folder = [one for one, rest in rests.items() if rest.startswith("/")]
    return folder or [one for one, rest in rests.items() if "/" not in rest]


def _parsed(source: str) -> tuple[str, str]:
    matched = _SOURCE.fullmatch(source)
    if matched is None:
        raise ChannelError(f"{source} is no s3://BUCKET/PREFIX")
    return matched[1], matched[2] or ""


def _index_of(s3: Any, data: S3Object, listed: Mapping[tuple[str, str], S3Object]) -> S3Object:
    key = data.key.removesuffix(DATA) + INDEX
    known = listed.get((data.bucket, key))
    found = known if known is not None else _head(s3, data.bucket, key)
    if found is None:
        where = "which says where its records begin"
        raise ChannelError(f"{data} has no index {key} beside it, {where}: `dyntrain index FILE{DATA}` makes one")
    return found


def _of_manifest(s3: Any, bucket: str, key: str) -> list[S3Object]:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html"""
    where = f"s3://{bucket}/{key}"
    try:
        with reading(where):
            told = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    except ValueError as error:
        raise ChannelError(f"{where} is no manifest: {error}") from error
    match told:
        case [{"prefix": str(prefix)}, *names] if names and all(isinstance(name, str) for name in names):
            there, below = _parsed(prefix)
        case _:
            raise ChannelError(f'{where} is no manifest: [{{"prefix": "s3://BUCKET/..."}}, "object", ...]')

    def named(name: str) -> S3Object:
        found = _head(s3, there, below + name)
        if found is None:
            raise ChannelError(f"{where} names {prefix}{name}, which is not there")
        return found

    return side_by_side(named, names)


def _head(s3: Any, bucket: str, key: str) -> S3Object | None:
    """None: it is not there."""
    try:
        with reading(f"s3://{bucket}/{key}"):
            told = s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] == "404":
            return None
        raise
    return S3Object(bucket, key, told["ContentLength"], told["ETag"])
