"""Writes the command's output to a file and to CloudWatch Logs, and keeps the last lines in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from botocore.exceptions import ClientError
from dyntrain.controller.contract.job_files import LOG_GROUP, TAIL_LINES
from dyntrain.node_bootstrap.job.bucket import AWS_ERRORS, error_code

# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html
BATCH_BYTES = 1_000_000  # size limit of a batch
BATCH_EVENTS = 10_000  # maximum number of events in a batch
EVENT_BYTES = 26  # added by CloudWatch to each event
LINE_BYTES = 200_000  # longer lines are split
WAITING_LINES = 100_000  # if more lines wait for CloudWatch, the oldest are dropped
SHIP_SECONDS = 2.0  # pause between uploads to CloudWatch
LAST_SECONDS = 20.0  # time limit for sending the remaining lines


class Output:
    """Receives the command's output; several threads may call the methods.

    The function `connect` makes the client of CloudWatch Logs. The file at `path` contains all lines of the output, and
    also the error if CloudWatch refuses lines.
    """

    def __init__(self, path: Path, stream: str, connect: Callable[[], Any], pause: float = SHIP_SECONDS) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("ab")
        self._stream, self._connect, self._pause = stream, connect, pause
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, str]] = deque(maxlen=WAITING_LINES)
        self._last: deque[str] = deque(maxlen=TAIL_LINES)
        self._closed = threading.Event()
        self._last_error = ""
        self._logs: Any = None
        self._shipper = threading.Thread(target=self._ship_until_closed, name="logs", daemon=True)
        self._shipper.start()

    def say(self, text: str) -> None:
        """Write a line of this program itself to the output, marked to differ from the lines of the job's command."""
        self.write_line(f"dyntrain: {text}".encode())

    def write_line(self, line: bytes) -> None:
        text = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r\n")
        with self._lock:
            self._file.write(line.rstrip(b"\r\n") + b"\n")
            self._file.flush()
            self._last.append(text)
            self._waiting.append((int(time.time() * 1000), text or " "))  # CloudWatch takes no empty message

    def tail(self) -> list[str]:
        with self._lock:
            return list(self._last)

    def copy(self, source: IO[bytes]) -> None:
        """Copy all lines of the stream `source` to the output, until the stream ends."""
        for line in iter(lambda: source.readline(LINE_BYTES), b""):
            self.write_line(line)

    def close(self) -> None:
        """Send the remaining lines to CloudWatch, for at most LAST_SECONDS."""
        self._closed.set()
        self._shipper.join(LAST_SECONDS)
        self._file.flush()

    def _ship_until_closed(self) -> None:
        while not self._closed.wait(self._pause):
            self._ship_lines()
        self._ship_lines()

    def _ship_lines(self) -> None:
        while batch := self._next_batch():
            try:
                self._send(batch)
            except AWS_ERRORS as error:
                with self._lock:
                    free_lines = WAITING_LINES - len(self._waiting)
                    self._waiting.extendleft(reversed(batch[max(0, len(batch) - free_lines) :]))
                if self._last_error != str(error):
                    self._last_error = str(error)
                    with self._lock:
                        self._file.write(f"dyntrain: CloudWatch does not take the output: {error}\n".encode())
                return

    def _next_batch(self) -> list[tuple[int, str]]:
        batch: list[tuple[int, str]] = []
        batch_bytes = 0
        with self._lock:
            while self._waiting and len(batch) < BATCH_EVENTS:
                batch_bytes += len(self._waiting[0][1].encode()) + EVENT_BYTES
                if batch and batch_bytes > BATCH_BYTES:
                    break
                batch.append(self._waiting.popleft())
        return batch

    def _send(self, batch: list[tuple[int, str]]) -> None:
        if self._logs is None:
            logs_client = self._connect()
            with suppress(ClientError):  # the group may exist, and the role may not create groups
                logs_client.create_log_group(logGroupName=LOG_GROUP)
            try:
                logs_client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=self._stream)
            except ClientError as error:
                if error_code(error) != "ResourceAlreadyExistsException":
                    raise
            self._logs = logs_client
        timestamp = 0
        events = []
        for written_at, text in batch:
            timestamp = max(timestamp, written_at)
            events.append({"timestamp": timestamp, "message": text})
        self._logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=self._stream, logEvents=events)
