"""Parses and checks names of data in S3: channels, addresses, manifests. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

MANIFEST = ",manifest"  # ends the address of a manifest
CHANNEL_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
)  # SageMaker's names without dots, which no name of a variable may have
# Accepts the names that us-east-1 allowed before 2018, too:
# docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_SOURCE = re.compile(r"s3://([A-Za-z0-9._-]{3,255})(?:/(.*))?", re.DOTALL)


class ChannelError(RuntimeError):
    """A channel cannot be read, and only the user can remove the reason, which the message names."""


@dataclass(frozen=True)
class S3Object:
    """An object in S3."""

    bucket: str
    key: str
    size: int  # bytes
    etag: str  # changes when the object is replaced

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def checked_name(name: str) -> str:
    """Return the name unchanged. Raises ChannelError for an invalid channel name."""
    if not CHANNEL_NAME.fullmatch(name):
        raise ChannelError(f"{name!r} is no valid name of a channel: use at most 64 letters, digits, - and _")
    return name


def bucket_and_prefix(source: str) -> tuple[str, str]:
    """Split an address in S3 into the bucket and the prefix, or into the bucket and the key of a manifest.

    Raises ChannelError if `source` is no S3 address.
    """
    match = _SOURCE.fullmatch(source.removesuffix(MANIFEST))
    if match is None:
        raise ChannelError(f"{source} is no s3://BUCKET/PREFIX")
    return match[1], match[2] or ""


def checked_source(source: str) -> str:
    """Return `source` unchanged. Raises ChannelError if `source` is no S3 address."""
    bucket_and_prefix(source)
    return source


def manifest_of(content: bytes, address: str) -> tuple[str, list[str]]:
    """Return the bucket and the keys of the objects that a manifest lists, in the manifest's order.

    Raises ChannelError.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html
    """
    try:
        manifest: Any = json.loads(content)
    except ValueError as error:
        raise ChannelError(f"{address} is no manifest: {error}") from error
    first_entry: Any = manifest[0] if isinstance(manifest, list) and len(manifest) > 1 else None
    prefix = first_entry.get("prefix") if isinstance(first_entry, dict) and len(first_entry) == 1 else None
    if not isinstance(prefix, str) or not all(isinstance(object_name, str) for object_name in manifest[1:]):
        raise ChannelError(f'{address} is no manifest: [{{"prefix": "s3://BUCKET/..."}}, "object", ...]')
    bucket, key_prefix = bucket_and_prefix(prefix)
    return bucket, [key_prefix + object_name for object_name in manifest[1:]]
