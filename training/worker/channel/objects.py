"""Which objects a channel has, in the one order that all workers agree on."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from dyntrain.training.feed.listing import head, listed, side_by_side
from dyntrain.training.feed.places import ChannelError, S3Object, checked_name

DATA, INDEX = ".rec", ".idx"
VARIABLE = "DYNTRAIN_CHANNEL_"  # and the channel's name in capitals: where it lies
ROOT_VARIABLE = "DYNTRAIN_CHANNELS"  # below which each channel is a folder of its name
log = logging.getLogger(__name__)


def variable(name: str) -> str:
    """Raises ChannelError for what is no channel's name."""
    return VARIABLE + checked_name(name).upper().replace("-", "_")


def source_of(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Raises ChannelError when nobody said where the channel lies."""
    if source := environment.get(variable(name)):
        return source
    if root := environment.get(ROOT_VARIABLE):
        return f"{root.rstrip('/')}/{name}/"
    raise ChannelError(
        f"channel {name}: nobody says where it lies: dyntrain launch --channel {name}=s3://BUCKET/PREFIX/ does, on a "
        f"cluster DataBucket and DataPrefix of its template, or the variable {variable(name)}"
    )


def objects_of(s3: Any, source: str) -> list[tuple[S3Object, S3Object]]:
    """Each data object that has a byte with its index, ordered by key. `source` is s3://BUCKET/PREFIX, or
    s3://BUCKET/KEY,manifest. Writers of shards leave empty ones: they are passed over, with a warning. Raises
    ChannelError, and what botocore raises.
    """
    objects = {(one.bucket, one.key): one for one in listed(s3, source)}
    data = sorted((one for one in objects.values() if one.key.endswith(DATA)), key=lambda one: (one.bucket, one.key))
    if not data:
        raise ChannelError(f"{source}: there is no object whose name ends with {DATA}")
    if empty := [one for one in data if not one.size]:
        log.warning("%s: passed over, as they are empty: %s", source, ", ".join(one.key for one in empty))
        data = [one for one in data if one.size]
    if not data:
        raise ChannelError(f"{source}: all its objects are empty")
    return list(zip(data, side_by_side(lambda one: _index_of(s3, one, objects), data), strict=True))


def _index_of(s3: Any, data: S3Object, known: Mapping[tuple[str, str], S3Object]) -> S3Object:
    key = data.key.removesuffix(DATA) + INDEX
    index = known.get((data.bucket, key)) or head(s3, data.bucket, key)
    if index is None:
        where = "which says where its records begin"
        raise ChannelError(f"{data} has no index {key} beside it, {where}: `dyntrain index FILE{DATA}` makes one")
    return index
