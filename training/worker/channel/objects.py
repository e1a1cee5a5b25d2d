"""The S3 objects of a channel, in the same order on all workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from dyntrain.training.feed.listing import in_parallel, listed, look_up_object
from dyntrain.training.feed.places import ChannelError, S3Object, checked_name

DATA, INDEX = ".rec", ".idx"
VARIABLE = "DYNTRAIN_CHANNEL_"  # followed by the channel's name in capitals: its location
ROOT_VARIABLE = "DYNTRAIN_CHANNELS"  # the root below which each channel has a folder of its name
log = logging.getLogger(__name__)


def variable(name: str) -> str:
    """Return the environment variable for the channel's location. Raises ChannelError for an invalid name."""
    return VARIABLE + checked_name(name).upper().replace("-", "_")


def source_of(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the channel's location. Raises ChannelError if no environment variable is set for the channel."""
    if source := environment.get(variable(name)):
        return source
    if root := environment.get(ROOT_VARIABLE):
        return f"{root.rstrip('/')}/{name}/"
    raise ChannelError(
        f"channel {name}: its location is not set. Pass --channel {name}=s3://BUCKET/PREFIX/ to dyntrain launch, set "
        f"DataBucket and DataPrefix in the cluster's template, or set the variable {variable(name)}"
    )


def objects_of(s3: Any, source: str) -> list[tuple[S3Object, S3Object]]:
    """Return each data object that is not empty with its index, ordered by bucket and key.

    `source` is s3://BUCKET/PREFIX, or s3://BUCKET/KEY,manifest. Empty objects, which writers of shards leave, are
    skipped with a warning. Raises ChannelError and botocore's errors.
    """
    objects = {(item.bucket, item.key): item for item in listed(s3, source)}
    data = sorted(
        (item for item in objects.values() if item.key.endswith(DATA)), key=lambda item: (item.bucket, item.key)
    )
    if not data:
        raise ChannelError(f"{source}: there is no object whose name ends with {DATA}")
    if empty := [item for item in data if not item.size]:
        log.warning("%s: skipped these empty objects: %s", source, ", ".join(item.key for item in empty))
        data = [item for item in data if item.size]
    if not data:
        raise ChannelError(f"{source}: all its objects are empty")
    return list(zip(data, in_parallel(lambda item: _index_of(s3, item, objects), data), strict=True))


def _index_of(s3: Any, data: S3Object, known: Mapping[tuple[str, str], S3Object]) -> S3Object:
    key = data.key.removesuffix(DATA) + INDEX
    index = known.get((data.bucket, key)) or look_up_object(s3, data.bucket, key)
    if index is None:
        raise ChannelError(f"{data} has no index {key}: create one with `dyntrain index FILE{DATA}`, and upload it")
    return index
