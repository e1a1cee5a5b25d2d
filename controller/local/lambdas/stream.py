"""Deliver records of DynamoDB streams to functions in batches, as Lambda's event source mapping does.

Records of one item stay in order. Records of different items are split over parallel lanes, and shuffled within a
batch. A failed batch is cut in half and tried again. Therefore a record that always fails becomes a dead letter alone,
and the other records pass.
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
from dyntrain.controller.local.lambdas.rules import StreamRule, matches
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.trace import Trace

Record = dict[str, Any]

IDLE_SECONDS = 0.5


def item_key(record: Record) -> str:
    return json.dumps(record["dynamodb"]["Keys"], sort_keys=True)


def wire_record(record: Record, region: str, stream_arn: str) -> Record:
    """Convert moto's record to the format that Lambda gets
    (https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).
    """
    created = record["dynamodb"]["ApproximateCreationDateTime"]
    seconds = (
        created.replace(tzinfo=datetime.UTC).timestamp() if isinstance(created, datetime.datetime) else float(created)
    )
    change = {**record["dynamodb"], "ApproximateCreationDateTime": seconds}
    return {**record, "awsRegion": region, "eventSourceARN": stream_arn, "dynamodb": change}


def shuffled_by_item(records: list[Record], chance: random.Random) -> list[Record]:
    """The records in a random order in which the records of each item keep their order."""
    queues: dict[str, deque[Record]] = defaultdict(deque)
    for record in records:
        queues[item_key(record)].append(record)
    key_order = [key for key, queue in queues.items() for _ in queue]
    chance.shuffle(key_order)
    return [queues[key].popleft() for key in key_order]


class Lane:
    """A queue of records that has one batch in flight at a time. All records of an item take the same lane."""

    def __init__(self) -> None:
        self.records: deque[Record] = deque()
        self.changed = threading.Condition()
        self.stopped = False

    def put(self, record: Record) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify()

    def take(self, window: float, limit: int) -> list[Record]:
        """Wait for a first record, then `window` seconds for more; return up to `limit` records. Empty once the lane is
        stopped.
        """
        with self.changed:
            while not self.records and not self.stopped:
                self.changed.wait()
            deadline = time.monotonic() + window
            while len(self.records) < limit and not self.stopped and (seconds_left := deadline - time.monotonic()) > 0:
                self.changed.wait(seconds_left)
            if self.stopped:
                return []
            return [self.records.popleft() for _ in range(min(limit, len(self.records)))]

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class Stream:
    """Deliver records of the table's stream to the functions that subscribe to it."""

    def __init__(
        self,
        account: Account,
        trace: Trace,
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
        self._table_written = threading.Event()
        self._stopping = threading.Event()
        self._routes: list[tuple[StreamRule, list[Lane]]] = []
        self._threads: list[threading.Thread] = []

    def start(self, rules: tuple[StreamRule, ...]) -> None:
        for rule in rules:
            lanes = [Lane() for _ in range(self._options.stream_lanes)]
            self._routes.append((rule, lanes))
            self._threads += [
                threading.Thread(target=self._feed, args=(rule, lane), name="stream-lane", daemon=True)
                for lane in lanes
            ]
        self._threads.append(threading.Thread(target=self._read, name="stream-reader", daemon=True))
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Make the reader look for new records, because a table was written."""
        self._table_written.set()

    def stop(self) -> None:
        """Stop all lanes. Call this after the handlers' pool has been stopped: a lane first waits for the result of its
        batch.
        """
        self._stopping.set()
        self._table_written.set()
        for _rule, lanes in self._routes:
            for lane in lanes:
                lane.stop()
        for thread in self._threads:
            thread.join(10.0)

    def _read(self) -> None:
        positions: Counter[str] = Counter()
        while not self._stopping.is_set():
            self._table_written.wait(IDLE_SECONDS)
            self._table_written.clear()
            for rule, lanes in self._routes:
                records = self._records(rule.stream_arn, positions[rule.function])
                positions[rule.function] += len(records)
                for record in records:
                    lambda_record = wire_record(record, self._account.region, rule.stream_arn)
                    if not rule.filters or any(matches(pattern, lambda_record) for pattern in rule.filters):
                        lanes[zlib.crc32(item_key(lambda_record).encode()) % len(lanes)].put(lambda_record)

    def _records(self, stream_arn: str, position: int) -> list[Record]:
        name = stream_arn.partition(":table/")[2].partition("/")[0]
        with self._account.lock:
            table = self._account.dynamodb.tables.get(name)
            shard = table.stream_shard if table is not None else None
            return [] if shard is None else [item.to_json() for item in shard.items[position:]]

    def _feed(self, rule: StreamRule, lane: Lane) -> None:
        limit = min(rule.batch, self._options.stream_batch)
        while batch := lane.take(self._options.stream_window, limit):
            ordered = shuffled_by_item(batch, self._random)
            self._deliver(rule, ordered)
            if self._random.random() < self._options.duplicate_fraction:
                self._deliver(rule, ordered)

    def _deliver(self, rule: StreamRule, batch: list[Record], attempt: int = 1) -> None:
        outcome = self._lambdas.invoke(rule.function, {"Records": batch})
        if outcome.ok or outcome.kind == "stopped" or self._stopping.is_set():
            return
        if len(batch) > 1:
            middle = len(batch) // 2
            self._deliver(rule, batch[:middle])
            self._deliver(rule, batch[middle:])
        elif attempt < self._options.stream_attempts:
            self._stopping.wait(self._options.stream_retry_delay)
            self._deliver(rule, batch, attempt + 1)
        else:
            self._dead_letters.put(
                rule.function, str(uuid.uuid4()), {"Records": batch}, attempt, outcome.error_type, outcome.error
            )
