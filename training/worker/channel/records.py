"""Datasets whose samples are the records (bytes) of RecordIO objects in S3."""

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
from dyntrain.training.feed.listing import in_parallel, translated_s3_errors
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.stream import ObjectStream
from dyntrain.training.host import aws
from dyntrain.training.worker.channel.framing import payload
from dyntrain.training.worker.channel.objects import objects_of

from mxnet import gluon  # isort: skip

log = logging.getLogger(__name__)
MAX_OPEN_OBJECTS = 128  # open connections of a process: one for each object that is being read
CLIENT_SETTINGS = Config(
    connect_timeout=5,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 2},
    max_pool_connections=MAX_OPEN_OBJECTS,
)


def make_s3_client() -> Any:
    return aws.session().client("s3", config=CLIENT_SETTINGS)


class Streams:
    """The S3 objects that this process has open.

    A forked process opens its own connections. Above `MAX_OPEN_OBJECTS`, the least recently used object is closed.
    """

    def __init__(self, connect: Callable[[], Any] = make_s3_client) -> None:
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
            if len(self._open) > MAX_OPEN_OBJECTS:
                self._open.popitem(last=False)[1].close()
            return stream.read(start, length)


class S3Records(gluon.data.Dataset):  # type: ignore[misc]  # mxnet has no types
    """A dataset of the records in one S3 object. A sample is a record's bytes."""

    def __init__(self, source: S3Object, starts: np.ndarray[Any, np.dtype[np.int64]], streams: Streams) -> None:
        self._source, self._starts, self._streams = source, starts, streams

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> bytes:
        """Return the payload of record number `index`. Raises ChannelError."""
        start_byte = int(self._starts[index])
        end_byte = int(self._starts[index + 1]) if index + 1 < len(self) else self._source.size
        try:
            return payload(self._streams.read(self._source, start_byte, end_byte - start_byte))
        except ValueError as error:
            raise ChannelError(f"{self._source}, record {index}, at byte {start_byte}: {error}") from error


def open_channel(source: str, streams: Streams | None = None) -> list[S3Records]:
    """Return one dataset for each data object of a channel. Raises ChannelError, or an error of botocore."""
    streams = streams or Streams()
    s3 = streams.connect()

    def read_index(index_object: S3Object) -> bytes:
        with translated_s3_errors(index_object):
            return bytes(s3.get_object(Bucket=index_object.bucket, Key=index_object.key)["Body"].read())

    object_pairs = objects_of(s3, source)
    index_texts = in_parallel(read_index, [index_object for _, index_object in object_pairs])
    return [
        S3Records(data_object, record_starts_in_index(index_text, index_object, data_object.size), streams)
        for (data_object, index_object), index_text in zip(object_pairs, index_texts, strict=True)
    ]


def record_starts_in_index(text: bytes, index_name: object, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offsets of the records of an object of `size` bytes, in ascending order, from its index's text.

    The index contains a line `KEY<tab>OFFSET` for each record. A key may contain spaces. If several records have the
    same key, MXNet finds only the last of these records, but this function returns the offsets of all records. Raises
    ChannelError.
    """
    record_starts, record_keys = [], set()
    for line_number, line in enumerate(text.splitlines(), 1):
        key, separator, offset_text = line.rpartition(b"\t") if b"\t" in line else line.rpartition(b" ")
        if not separator or not offset_text.strip().isdigit() or int(offset_text) >= size:
            shown_line = line.decode("utf-8", "replace")
            raise ChannelError(
                f"{index_name} is no RecordIO index: line {line_number}, {shown_line!r}, is not KEY<tab>OFFSET "
                f"below {size}"
            )
        record_starts.append(int(offset_text))
        record_keys.add(key.strip())
    if len(set(record_starts)) < len(record_starts) or not record_starts:
        raise ChannelError(f"{index_name} is no RecordIO index: it must have at least one offset, and no offset twice")
    if len(record_keys) < len(record_starts):
        log.warning(
            "%s: %d keys name %d records; all records are read", index_name, len(record_keys), len(record_starts)
        )
    return np.sort(np.array(record_starts, np.int64))
