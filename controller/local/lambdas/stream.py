"""Deliver records of DynamoDB streams to functions in batches, as Lambda's event source mapping does.

Records of the same table item stay in order. Records of different items are distributed over parallel queues (lanes),
and shuffled within a batch. A failed batch is cut in half, and both halves are delivered again. Because batches are
halved, only a record that always fails becomes a dead letter, and all other records are delivered.
"""

from __future__ import annotations

import datetime
import json
import random
import threading
import time
import uuid
import zlib
from collections import Counter, defaultdict, deque
from typing import Any

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.lambdas.dead_letters import DeadLetters
from dyntrain.controller.local.lambdas.functions import Lambdas
from dyntrain.controller.local.lambdas.rules import StreamRule, matches_pattern
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.trace import CloudTrace

StreamRecord = dict[str, Any]

IDLE_POLL_SECONDS = 0.5  # between two reads of the streams while no table is written


def item_key_of(record: StreamRecord) -> str:
    return json.dumps(record["dynamodb"]["Keys"], sort_keys=True)


def to_lambda_record(record: StreamRecord, region: str, stream_arn: str) -> StreamRecord:
    """Convert moto's stream record to the format that Lambda functions receive
    (https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).
    """
    created_at = record["dynamodb"]["ApproximateCreationDateTime"]
    created_seconds = (
        created_at.replace(tzinfo=datetime.UTC).timestamp()
        if isinstance(created_at, datetime.datetime)
        else float(created_at)
    )
    item_change = {**record["dynamodb"], "ApproximateCreationDateTime": created_seconds}
    return {**record, "awsRegion": region, "eventSourceARN": stream_arn, "dynamodb": item_change}


def shuffled_by_item(records: list[StreamRecord], chance: random.Random) -> list[StreamRecord]:
    """The records in a random order, but with all records of the same item in their original order."""
    records_by_item: dict[str, deque[StreamRecord]] = defaultdict(deque)
    for record in records:
        records_by_item[item_key_of(record)].append(record)
    key_order = [key for key, item_records in records_by_item.items() for _ in item_records]
    chance.shuffle(key_order)
    return [records_by_item[key].popleft() for key in key_order]


class RecordLane:
    """A queue of stream records. At most one batch of the queue is delivered at a time. All records of a table item go
    into the same lane.
    """

    def __init__(self) -> None:
        self.records: deque[StreamRecord] = deque()
        self.changed = threading.Condition()
        self.stopped = False

    def put(self, record: StreamRecord) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify()

    def take_batch(self, window_seconds: float, record_limit: int) -> list[StreamRecord]:
        """Wait for a record, then wait at most `window_seconds` for more records, and return up to `record_limit`
        records. Returns an empty list once the lane is stopped.
        """
        with self.changed:
            while not self.records and not self.stopped:
                self.changed.wait()
            deadline = time.monotonic() + window_seconds
            while (
                len(self.records) < record_limit
                and not self.stopped
                and (seconds_left := deadline - time.monotonic()) > 0
            ):
                self.changed.wait(seconds_left)
            if self.stopped:
                return []
            return [self.records.popleft() for _ in range(min(record_limit, len(self.records)))]

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class TableStream:
    """Deliver records of the table's stream to the functions that subscribe to this stream."""

    def __init__(
        self,
        account: Account,
        trace: CloudTrace,
        lambdas: Lambdas,
        dead_letters: DeadLetters,
        options: Options,
    ) -> None:
        self._account = account
        self._trace = trace
        self._lambdas = lambdas
        self._dead_letters = dead_letters
        self._options = options
        self._random = random.Random(options.seed)
        self._table_changed = threading.Event()
        self._stopping = threading.Event()
        self._routes: list[tuple[StreamRule, list[RecordLane]]] = []
        self._threads: list[threading.Thread] = []

    def start(self, rules: tuple[StreamRule, ...]) -> None:
        for rule in rules:
            lanes = [RecordLane() for _ in range(self._options.stream_lanes)]
            self._routes.append((rule, lanes))
            self._threads += [
                threading.Thread(target=self._deliver_lane, args=(rule, lane), name="stream-lane", daemon=True)
                for lane in lanes
            ]
        self._threads.append(threading.Thread(target=self._read_streams, name="stream-reader", daemon=True))
        for thread in self._threads:
            thread.start()

    def wake_reader(self) -> None:
        """Make the reading thread look for new stream records, because a table was written."""
        self._table_changed.set()

    def stop(self) -> None:
        """Stop all lanes. Callers must stop the pool of handler processes before this call, because a lane stops only
        when its current batch has a result.
        """
        self._stopping.set()
        self._table_changed.set()
        for _rule, lanes in self._routes:
            for lane in lanes:
                lane.stop()
        for thread in self._threads:
            thread.join(10.0)

    def _read_streams(self) -> None:
        read_counts: Counter[str] = Counter()
        while not self._stopping.is_set():
            self._table_changed.wait(IDLE_POLL_SECONDS)
            self._table_changed.clear()
            for rule, lanes in self._routes:
                records = self._new_records(rule.stream_arn, read_counts[rule.function])
                read_counts[rule.function] += len(records)
                for record in records:
                    lambda_record = to_lambda_record(record, self._account.region, rule.stream_arn)
                    if not rule.filters or any(matches_pattern(pattern, lambda_record) for pattern in rule.filters):
                        lanes[zlib.crc32(item_key_of(lambda_record).encode()) % len(lanes)].put(lambda_record)

    def _new_records(self, stream_arn: str, read_count: int) -> list[StreamRecord]:
        table_name = stream_arn.partition(":table/")[2].partition("/")[0]
        with self._account.lock:
            table = self._account.dynamodb.tables.get(table_name)
            stream_shard = table.stream_shard if table is not None else None
            return [] if stream_shard is None else [item.to_json() for item in stream_shard.items[read_count:]]

    def _deliver_lane(self, rule: StreamRule, lane: RecordLane) -> None:
        record_limit = min(rule.batch, self._options.stream_batch)
        while batch := lane.take_batch(self._options.stream_window, record_limit):
            shuffled_batch = shuffled_by_item(batch, self._random)
            self._deliver_batch(rule, shuffled_batch)
            if self._random.random() < self._options.duplicate_fraction:
                self._deliver_batch(rule, shuffled_batch)

    def _deliver_batch(self, rule: StreamRule, batch: list[StreamRecord], attempt: int = 1) -> None:
        invocation_result = self._lambdas.invoke(rule.function, {"Records": batch})
        if invocation_result.ok or invocation_result.kind == "stopped" or self._stopping.is_set():
            return
        if len(batch) > 1:
            half_size = len(batch) // 2
            self._deliver_batch(rule, batch[:half_size])
            self._deliver_batch(rule, batch[half_size:])
        elif attempt < self._options.stream_attempts:
            self._stopping.wait(self._options.stream_retry_delay)
            self._deliver_batch(rule, batch, attempt + 1)
        else:
            self._dead_letters.store(
                rule.function,
                str(uuid.uuid4()),
                {"Records": batch},
                attempt,
                invocation_result.error_type,
                invocation_result.error,
            )
