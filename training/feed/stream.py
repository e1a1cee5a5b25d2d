"""Reads ranges of an S3 object, mostly in sequence. If the connection breaks, the read continues at the next byte."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.training.feed.places import ChannelError, S3Object

PIECE_BYTES = 256 * 1024  # bytes taken from the connection at once
MAX_SKIPPED_BYTES = 1024 * 1024  # a gap up to this is read and dropped, as a new request costs a round trip
PATIENCE_SECONDS = 90.0  # seconds without a byte; less than the two minutes that a loader waits for a batch
LONGEST_PAUSE_SECONDS = 5.0  # between attempts to read


class ObjectStream:
    """An S3 object that is read by ranges, by one thread at a time.

    `s3` should be a client that retries only briefly, as this class itself retries for up to `PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        s3: Any,
        source: S3Object,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._s3, self._source, self._clock, self._sleep = s3, source, clock, sleep
        self._body: Any = None
        self._at = 0  # position of the buffer's first byte
        self._buffer = bytearray()

    def read(self, start: int, length: int) -> bytes:
        """Read `length` bytes of the object from byte `start` on.

        Raises ChannelError after `PATIENCE_SECONDS` without a byte, and at once for an error that no retry solves.
        """
        if start + length > self._source.size:
            raise ChannelError(
                f"{self._source} has only {self._source.size} bytes, so its index belongs to another object"
            )
        buffer_end = self._at + len(self._buffer)
        if self._body is None or not self._at <= start <= buffer_end + MAX_SKIPPED_BYTES:
            self.close()
            self._at = start
        while self._at + len(self._buffer) < start + length:
            if self._at + len(self._buffer) <= start:  # the whole buffer is before the range
                self._at += len(self._buffer)
                self._buffer.clear()
            self._buffer += self._read_next()
        del self._buffer[: start - self._at]
        self._at = start
        range_bytes = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._at += length
        return range_bytes

    def read_some(self, start: int) -> bytes:
        """Read at least one byte from byte `start` on, for sequential reads to the end.

        Raises ChannelError in the same cases as `read`.
        """
        if self._buffer or self._at != start:
            self.close()
            self._at = start
        next_bytes = self._read_next()
        self._at += len(next_bytes)
        return next_bytes

    def close(self) -> None:
        """Close the connection to S3 and empty the buffer."""
        self._close_connection()
        self._buffer.clear()

    def _close_connection(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None

    def _read_next(self) -> bytes:
        """Read at least one byte of the object, after the bytes that are already in the buffer."""
        began_at, pause_seconds = self._clock(), 0.1
        while True:
            try:
                if self._body is None:
                    self._body = self._open(self._at + len(self._buffer))
                if next_bytes := bytes(self._body.read(PIECE_BYTES)):
                    return next_bytes
                problem: Exception = EOFError("the connection ended early")
            except ClientError as error:
                self._close_connection()
                self._raise_if_permanent(error)
                problem = error
            except (BotoCoreError, OSError) as error:
                problem = error
            self._close_connection()
            if self._clock() - began_at > PATIENCE_SECONDS:
                raise ChannelError(f"{self._source}: no data for {PATIENCE_SECONDS:.0f} s: {problem}") from problem
            self._sleep(pause_seconds)
            pause_seconds = min(LONGEST_PAUSE_SECONDS, pause_seconds * 2)

    def _open(self, start: int) -> Any:
        arguments = {"Bucket": self._source.bucket, "Key": self._source.key, "Range": f"bytes={start}-"}
        return self._s3.get_object(**arguments, IfMatch=self._source.etag)["Body"]

    def _raise_if_permanent(self, error: ClientError) -> None:
        if error.response["Error"]["Code"] == "PreconditionFailed":
            raise ChannelError(
                f"{self._source} was replaced since the job began, and its records have changed"
            ) from error
        if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:  # SlowDown has a higher status
            raise ChannelError(f"{self._source}: {error}") from error
