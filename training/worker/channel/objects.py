"""Finds the S3 objects of a channel, in the same order on all workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from dyntrain.training.feed.listing import in_parallel, list_objects, look_up_object
from dyntrain.training.feed.places import ChannelError, S3Object, checked_name

DATA, INDEX = ".rec", ".idx"  # endings of the objects' names
VARIABLE_PREFIX = "DYNTRAIN_CHANNEL_"  # followed by the channel's name in capitals
ROOT_VARIABLE = "DYNTRAIN_CHANNELS"  # variable with the S3 folder of all channels' folders
log = logging.getLogger(__name__)


def channel_variable(channel_name: str) -> str:
    """Return the name of the environment variable with the channel's address in S3.

    Raises ChannelError for an invalid name.
    """
    return VARIABLE_PREFIX + checked_name(channel_name).upper().replace("-", "_")


def source_of(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the channel's address in S3. Raises ChannelError if no environment variable is set for the channel."""
    if source := environment.get(channel_variable(name)):
        return source
    if channels_root := environment.get(ROOT_VARIABLE):
        return f"{channels_root.rstrip('/')}/{name}/"
    raise ChannelError(
        f"channel {name}: its location is not set. Pass --channel {name}=s3://BUCKET/PREFIX/ to dyntrain launch, set "
        f"DataBucket and DataPrefix in the cluster's template, or set the variable {channel_variable(name)}"
    )


def objects_of(s3: Any, source: str) -> list[tuple[S3Object, S3Object]]:
    """Return pairs of a data object that is not empty and its index object, ordered by bucket and key.

    `source` is s3://BUCKET/PREFIX, or s3://BUCKET/KEY,manifest. Empty data objects, which writers of shards may leave,
    are skipped with a warning. Raises ChannelError, or an error of botocore.
    """
    objects_by_key = {(item.bucket, item.key): item for item in list_objects(s3, source)}
    data_objects = sorted(
        (item for item in objects_by_key.values() if item.key.endswith(DATA)), key=lambda item: (item.bucket, item.key)
    )
    if not data_objects:
        raise ChannelError(f"{source}: there is no object whose name ends with {DATA}")
    if empty_objects := [item for item in data_objects if not item.size]:
        log.warning("%s: skipped these empty objects: %s", source, ", ".join(item.key for item in empty_objects))
        data_objects = [item for item in data_objects if item.size]
    if not data_objects:
        raise ChannelError(f"{source}: all its objects are empty")
    return list(
        zip(data_objects, in_parallel(lambda item: _index_of(s3, item, objects_by_key), data_objects), strict=True)
    )


def _index_of(s3: Any, data_object: S3Object, objects_by_key: Mapping[tuple[str, str], S3Object]) -> S3Object:
    key = data_object.key.removesuffix(DATA) + INDEX
    index_object = objects_by_key.get((data_object.bucket, key)) or look_up_object(s3, data_object.bucket, key)
    if index_object is None:
        raise ChannelError(
            f"{data_object} has no index {key}: create one with `dyntrain index FILE{DATA}`, and upload it"
        )
    return index_object
