"""Stores for the controller's items in its DynamoDB table. Every write, except of ticks (periodic checks) and of the
audit trail, succeeds only if the item still has the version that was read.

If a write times out although it took effect, botocore repeats the write, and the repeated write raises Conflict. After
a Conflict, the caller reads the item again, and may find the facts that the caller itself had written.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors
from dyntrain.controller.adapters.items import (
    Item,
    cluster_key,
    group_item,
    group_key,
    group_of,
    job_item,
    job_key,
    job_of,
    membership_item,
    membership_of,
    node_item,
    node_key,
    node_of,
    notice_item,
    notice_key,
    notice_of,
    tick_item,
    trail_item,
    trail_key,
    trail_of,
    turn_item,
    turn_key,
    turn_of,
)
from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.core.history.trail import Entry
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.notify import StoredNotice
from dyntrain.controller.loops.ports import StoredGroup, StoredMembership, StoredNode, StoredTurn, TrailEntry

KEYS_PER_BATCH = 100  # keys in one call of BatchGetItem
MAX_BATCH_ATTEMPTS = 6  # calls of BatchGetItem for the same keys
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html: 400 KB an item, names included
MAX_TRAIL_ITEM_BYTES = 300_000
TRAIL_KEPT_SECONDS = 30 * 86_400.0  # time until an entry of the audit trail expires
NOTICE_KEPT_SECONDS = 86_400.0  # longer than SNS and Lambda retry a message


def split_trail_entries(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split audit-trail entries, in order, into lists that each fit into one DynamoDB item. An audit-trail entry may be
    long, because some entries contain up to 2,000 characters of a node's last output.
    """
    entry_chunks: list[list[Entry]] = []
    item_free_bytes = 0
    for entry in entries:
        entry_bytes = len(json.dumps(entry.fields())) + 2
        if entry_bytes > item_free_bytes or not entry_chunks:
            entry_chunks.append([])
            item_free_bytes = MAX_TRAIL_ITEM_BYTES
        entry_chunks[-1].append(entry)
        item_free_bytes -= entry_bytes
    return entry_chunks


class DynamoTable:
    """The base class of all stores in the controller's DynamoDB table."""

    def __init__(self, clients: Clients, table: str) -> None:
        self._clients = clients
        self._table = table

    def _get(self, key: Item) -> Mapping[str, Any] | None:
        with translated_errors(f"reading {key['pk']['S']} in table {self._table}"):
            return self._clients.dynamodb().get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")

    def _put(self, item: Item, version: int) -> None:
        """Replace the stored item if the stored item has the version `version`. Version 0 means that the table must not
        contain the item yet. Raises Conflict if the stored version differs from `version`.
        """
        write_condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if version:
            write_condition = {
                "ConditionExpression": "version = :version",
                "ExpressionAttributeValues": {":version": {"N": str(version)}},
            }
        with translated_errors(f"writing {item['pk']['S']} in table {self._table}"):
            try:
                self._clients.dynamodb().put_item(TableName=self._table, Item=item, **write_condition)
            except ClientError as error:
                if error_code(error) == "ConditionalCheckFailedException":
                    raise Conflict(
                        f"item {item['pk']['S']} was not written: its version is no longer {version}"
                    ) from error
                raise

    def _cluster_items(self, cluster: str, kind: str) -> Iterator[Mapping[str, Any]]:
        """The cluster's items of the kind `kind`, read from an index of the table that may be slightly out of date.
        Raises RetryLater if a page of items cannot be read, because the result must be complete.
        """
        with translated_errors(f"listing the {kind}s of {cluster} in table {self._table}"):
            item_pages = (
                self._clients.dynamodb()
                .get_paginator("query")
                .paginate(
                    TableName=self._table,
                    IndexName="by-cluster",
                    KeyConditionExpression="#cluster = :cluster AND begins_with(pk, :kind)",
                    ExpressionAttributeNames={"#cluster": "cluster"},
                    ExpressionAttributeValues={":cluster": {"S": cluster}, ":kind": {"S": f"{kind}#"}},
                )
            )
            for page in item_pages:
                yield from page["Items"]


class TableNodes(DynamoTable):
    def get(self, instance: str) -> StoredNode | None:
        item = self._get(node_key(instance))
        return node_of(item) if item is not None else None

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        instance_ids = list(dict.fromkeys(instances))
        nodes: dict[str, StoredNode] = {}
        for start in range(0, len(instance_ids), KEYS_PER_BATCH):
            for item in self._fetch([node_key(instance) for instance in instance_ids[start : start + KEYS_PER_BATCH]]):
                node = node_of(item)
                nodes[node.facts.instance] = node
        return nodes

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        self._put(node_item(node.facts, node.version + 1, wake, expires), node.version)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        return {node.facts.instance: node for node in map(node_of, self._cluster_items(cluster, "node"))}

    def _fetch(self, keys: list[Item]) -> Iterator[Mapping[str, Any]]:
        """Read all items with the given keys. If DynamoDB returns only a part of the requested items, the call is
        repeated for the missing items. Raises RetryLater when DynamoDB still withholds some items after
        MAX_BATCH_ATTEMPTS calls.
        """
        unread_keys: Any = {self._table: {"Keys": keys, "ConsistentRead": True}}
        for attempt in range(MAX_BATCH_ATTEMPTS):
            with translated_errors(f"reading nodes in table {self._table}"):
                response = self._clients.dynamodb().batch_get_item(RequestItems=unread_keys)
            yield from response["Responses"].get(self._table, [])
            unread_keys = response.get("UnprocessedKeys")
            if not unread_keys:
                return
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
        raise RetryLater(
            f"reading nodes failed: table {self._table} returned only a part of the items "
            f"{MAX_BATCH_ATTEMPTS} times in a row"
        )


class TableGroups(DynamoTable):
    def get(self, group: str) -> StoredGroup | None:
        item = self._get(group_key(group))
        return group_of(item) if item is not None else None

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        self._put(group_item(stored.facts, stored.version + 1, wake), stored.version)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        return {group.facts.group: group for group in map(group_of, self._cluster_items(cluster, "group"))}


class TableJobs(DynamoTable):
    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        item = self._get(job_key(cluster))
        return job_of(item) if item is not None else (None, 0)

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        self._put(job_item(cluster, job, version + 1, wake), version)


class TableClusters(DynamoTable):
    def get(self, cluster: str) -> StoredMembership:
        item = self._get(cluster_key(cluster))
        return membership_of(item) if item is not None else StoredMembership(Membership(), published=0, version=0)

    def put(self, cluster: str, stored: StoredMembership) -> None:
        self._put(membership_item(cluster, stored, stored.version + 1), stored.version)

    def turn(self, cluster: str) -> StoredTurn:  # the stored lock
        item = self._get(turn_key(cluster))
        return turn_of(item) if item is not None else StoredTurn()

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:  # stores the lock
        self._put(turn_item(cluster, turn, turn.version + 1), turn.version)

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:
        with translated_errors(f"writing the tick of {cluster} in table {self._table}"):
            self._clients.dynamodb().put_item(TableName=self._table, Item=tick_item(cluster, at, surveyed))

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:  # writes to the audit trail
        for chunk in split_trail_entries(entries):
            item = trail_item(cluster, at, uuid.uuid4().hex[:12], chunk, at + TRAIL_KEPT_SECONDS)
            with translated_errors(f"writing the audit trail of {cluster} in table {self._table}"):
                self._clients.dynamodb().put_item(TableName=self._table, Item=item)

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        entries: list[TrailEntry] = []
        since_text = datetime.fromtimestamp(max(since, 0.0), UTC).isoformat(timespec="milliseconds")
        with translated_errors(f"reading the audit trail of {cluster} in table {self._table}"):
            item_pages = (
                self._clients.dynamodb()
                .get_paginator("query")
                .paginate(
                    TableName=self._table,
                    KeyConditionExpression="pk = :pk AND sk >= :since",
                    ExpressionAttributeValues={":pk": trail_key(cluster)["pk"], ":since": {"S": since_text}},
                )
            )
            for page in item_pages:
                for item in page["Items"]:
                    entries += trail_of(item)
        return entries

    def members_item_key(self, cluster: str) -> str:
        key = cluster_key(cluster)
        return f"{key['pk']['S']}/{key['sk']['S']}"


class TableNotices(DynamoTable):
    def get(self, message: str) -> StoredNotice | None:
        item = self._get(notice_key(message))
        return notice_of(item) if item is not None else None

    def put(self, message: str, notice: StoredNotice) -> None:
        self._put(notice_item(message, notice, notice.version + 1, notice.at + NOTICE_KEPT_SECONDS), notice.version)
