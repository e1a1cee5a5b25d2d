"""Datasets whose samples are the records of RecordIO objects in S3, as bytes."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from botocore.config import Config
from dyntrain.training.feed.listing import in_parallel, reading
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.stream import ObjectStream
from dyntrain.training.host import aws
from dyntrain.training.worker.channel.framing import payload
from dyntrain.training.worker.channel.objects import objects_of

from mxnet import gluon  # isort: skip

log = logging.getLogger(__name__)
MOST_OPEN = 128  # open connections of a process: one for each object that is being read
SETTINGS = Config(
    connect_timeout=5,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 2},
    max_pool_connections=MOST_OPEN,
)


def make_client() -> Any:
    return aws.session().client("s3", config=SETTINGS)


class Streams:
    """The open objects of this process. A fork opens its own objects. The least recently used are closed."""

    def __init__(self, connect: Callable[[], Any] = make_client) -> None:
        self.connect = connect
        self._lock = threading.Lock()
        self._pid = 0
        self._client: Any = None
        self._open: OrderedDict[S3Object, ObjectStream] = OrderedDict()

    def read(self, source: S3Object, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from byte `start` on. Raises ChannelError."""
        with self._lock:
            if self._pid != os.getpid():  # a forked process must not use its parent's connections
                self._pid, self._client, self._open = os.getpid(), self.connect(), OrderedDict()
            stream = self._open.pop(source, None) or ObjectStream(self._client, source)
            self._open[source] = stream
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            return stream.read(start, length)


class S3Records(gluon.data.Dataset):  # type: ignore[misc]  # mxnet has no types
    """The records of one object, as the bytes that were written."""

    def __init__(self, source: S3Object, starts: np.ndarray[Any, np.dtype[np.int64]], streams: Streams) -> None:
        self._source, self._starts, self._streams = source, starts, streams

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> bytes:
        """Return the record's payload. Raises ChannelError."""
        start = int(self._starts[index])
        end = int(self._starts[index + 1]) if index + 1 < len(self) else self._source.size
        try:
            return payload(self._streams.read(self._source, start, end - start))
        except ValueError as error:
            raise ChannelError(f"{self._source}, record {index}, at byte {start}: {error}") from error


def open_channel(source: str, streams: Streams | None = None) -> list[S3Records]:
    """Return one dataset for each object of a channel. Raises ChannelError and botocore's errors."""
    streams = streams or Streams()
    s3 = streams.connect()

    def read(index: S3Object) -> bytes:
        with reading(index):
            return bytes(s3.get_object(Bucket=index.bucket, Key=index.key)["Body"].read())

    objects = objects_of(s3, source)
    indexes = in_parallel(read, [index for _, index in objects])
    return [
        S3Records(data, starts_of(text, index, data.size), streams)
        for (data, index), text in zip(objects, indexes, strict=True)
    ]


def starts_of(text: bytes, index_name: object, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where the records of an object of `size` bytes begin, ascending, from the text of its index.

    The index has one line `KEY<tab>OFFSET` for each record; a key may have spaces. Where several records have the same
    key, MXNet finds only the last; here all are read. Raises ChannelError.
    """
    offsets, keys = [], set()
    for number, line in enumerate(text.splitlines(), 1):
        key, tab, offset = line.rpartition(b"\t") if b"\t" in line else line.rpartition(b" ")
        if not tab or not offset.strip().isdigit() or int(offset) >= size:
            shown = line.decode("utf-8", "replace")
            raise ChannelError(
                f"{index_name} is no RecordIO index: line {number}, {shown!r}, is not KEY<tab>OFFSET below {size}"
            )
        offsets.append(int(offset))
        keys.add(key.strip())
    if len(set(offsets)) < len(offsets) or not offsets:
        raise ChannelError(f"{index_name} is no RecordIO index: it must have at least one offset, and no offset twice")
    if len(keys) < len(offsets):
        log.warning("%s: %d keys name %d records; all records are read", index_name, len(keys), len(offsets))
    return np.sort(np.array(offsets, np.int64))
