"""The layout of the items in the controller's DynamoDB table. Items in the records of the table's DynamoDB stream have
the same layout.

An item stores its facts as one JSON string, because DynamoDB has no floating-point numbers. Only values that DynamoDB's
indexes, filters and conditions need are separate attributes of an item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dyntrain.controller.adapters.formats import facts_of_format_1, format_attribute, format_of
from dyntrain.controller.contract.errors import GiveUp, Quarantined
from dyntrain.controller.core.history.trail import Entry, entry_of
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.notify import StoredNotice
from dyntrain.controller.loops.ports import StoredGroup, StoredMembership, StoredNode, StoredTurn, TrailEntry, Wake

Item = dict[str, Any]  # an item of the DynamoDB table


def node_key(instance: str) -> Item:
    return {"pk": {"S": f"node#{instance}"}, "sk": {"S": "facts"}}


def job_key(cluster: str) -> Item:
    return {"pk": {"S": f"job#{cluster}"}, "sk": {"S": "report"}}


def group_key(group: str) -> Item:
    return {"pk": {"S": f"group#{group}"}, "sk": {"S": "facts"}}


def group_item(facts: GroupFacts, version: int, wake: bool) -> Item:
    table_item = {
        **group_key(facts.group),
        "facts": {"S": facts.model_dump_json(exclude_defaults=True)},
        **_common_attributes(version, wake),
    }
    if facts.named is not None and facts.named.cluster:
        table_item["cluster"] = {"S": facts.named.cluster}
    return table_item


def group_of(item: Mapping[str, Any]) -> StoredGroup:
    format_of(item)
    return StoredGroup(GroupFacts.model_validate_json(item["facts"]["S"]), int(item["version"]["N"]))


def notice_key(message: str) -> Item:
    return {"pk": {"S": f"notice#{message}"}, "sk": {"S": "sent"}}


def cluster_key(cluster: str) -> Item:
    return {"pk": {"S": f"cluster#{cluster}"}, "sk": {"S": "target"}}


def node_item(facts: NodeFacts, version: int, wake: bool, expires: float | None) -> Item:
    table_item = {
        **node_key(facts.instance),
        "facts": {"S": facts.model_dump_json(exclude_defaults=True)},
        **_common_attributes(version, wake),
    }
    if facts.named is not None:
        table_item["cluster"] = {"S": facts.named.cluster}
    if expires is not None:
        table_item["expires"] = {"N": str(int(expires))}
    return table_item


def node_of(item: Mapping[str, Any]) -> StoredNode:
    wake_pending = bool(item.get("wake", {}).get("BOOL"))
    facts_json = item["facts"]["S"]
    if format_of(item) == 1:
        facts = NodeFacts.model_validate(facts_of_format_1(json.loads(facts_json)))
    else:
        facts = NodeFacts.model_validate_json(facts_json)
    return StoredNode(facts, int(item["version"]["N"]), wake_pending)


def job_item(cluster: str, job: JobFacts, version: int, wake: bool) -> Item:
    return {**job_key(cluster), "job": {"S": job.model_dump_json()}, **_common_attributes(version, wake)}


def job_of(item: Mapping[str, Any]) -> tuple[JobFacts, int]:
    format_of(item)
    return JobFacts.model_validate_json(item["job"]["S"]), int(item["version"]["N"])


def membership_item(cluster: str, stored: StoredMembership, version: int) -> Item:
    """Build the table item that stores a cluster's membership. The item's attribute `members` is the full ordered list
    of the cluster's members. The field `Target.pointer` tells the cluster's coordinator the key of the membership item.
    """
    membership = stored.membership
    return {
        **cluster_key(cluster),
        "revision": {"N": str(membership.revision)},
        "members": {"L": [{"S": instance} for instance in membership.members]},
        "membership": {"S": membership.model_dump_json(exclude={"members"})},
        "published": {"N": str(stored.published)},
        **_common_attributes(version, wake=False),
    }


def membership_of(item: Mapping[str, Any]) -> StoredMembership:
    format_of(item)
    fields = {**json.loads(item["membership"]["S"]), "members": [entry["S"] for entry in item["members"]["L"]]}
    return StoredMembership(Membership.model_validate(fields), int(item["published"]["N"]), int(item["version"]["N"]))


def turn_key(cluster: str) -> Item:  # key of the lock `StoredTurn`
    return {"pk": {"S": f"turn#{cluster}"}, "sk": {"S": "turn"}}


def turn_item(cluster: str, turn: StoredTurn, version: int) -> Item:  # stores a lock
    return {
        **turn_key(cluster),
        "number": {"N": str(turn.number)},
        "until": {"N": f"{turn.until:.3f}"},
        "left": {"L": [{"S": instance} for instance in sorted(turn.left)]},
        **_common_attributes(version, wake=False),
    }


def turn_of(item: Mapping[str, Any]) -> StoredTurn:  # the stored lock
    format_of(item)
    deferred_ids = frozenset(entry["S"] for entry in item["left"]["L"])
    return StoredTurn(int(item["number"]["N"]), float(item["until"]["N"]), deferred_ids, int(item["version"]["N"]))


def trail_item(cluster: str, at: float, name: str, entries: Sequence[Entry], expires: float) -> Item:
    """Build a table item that stores audit-trail entries. `name` distinguishes items that were written in the same
    millisecond.
    """
    time_text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return {
        **trail_key(cluster),
        "sk": {"S": f"{time_text}#{name}"},
        "entries": {"S": json.dumps([entry.fields() for entry in entries])},
        "expires": {"N": str(int(expires))},
        "wake": {"BOOL": False},
        **format_attribute(),
    }


def trail_key(cluster: str) -> Item:
    return {"pk": {"S": f"audit#{cluster}"}}


def trail_of(item: Mapping[str, Any]) -> list[TrailEntry]:
    format_of(item)
    at = datetime.fromisoformat(item["sk"]["S"].partition("#")[0]).timestamp()
    return [TrailEntry(at, entry_of(entry_fields)) for entry_fields in json.loads(item["entries"]["S"])]


def tick_item(cluster: str, at: float, surveyed: bool) -> Item:
    key = {"pk": {"S": f"tick#{cluster}"}, "sk": {"S": "tick"}}
    return {**key, "at": {"N": f"{at:.3f}"}, "surveyed": {"BOOL": surveyed}, "wake": {"BOOL": True}}


def wake_of(records: Sequence[Mapping[str, Any]]) -> Wake:  # what to process next
    """The nodes, clusters and Auto Scaling groups to process after a batch of DynamoDB stream records. If several
    records contain the same node, the node's newest version is used.

    Each element of `records` is the field `dynamodb` of a record in a Lambda event. Raises Quarantined at the first
    unreadable stream record. The function `readable_records` removes unreadable stream records.
    """
    nodes: dict[str, StoredNode] = {}
    clusters, ticked_clusters, groups, surveyed_clusters = set(), set(), set(), set()
    for record in records:
        new_image = record.get("NewImage")
        if not new_image or not new_image.get("wake", {}).get("BOOL"):
            continue
        item_kind, item_name = _kind_and_name(new_image)
        if item_kind == "node":
            node = _node_of_image(new_image)
            if item_name not in nodes or nodes[item_name].version < node.version:
                nodes[item_name] = node
        elif item_kind == "job":
            clusters.add(item_name)
        elif item_kind == "tick":
            ticked_clusters.add(item_name)
            if new_image.get("surveyed", {}).get("BOOL"):
                surveyed_clusters.add(item_name)
        elif item_kind == "group":
            groups.add(item_name)
    return Wake(nodes, frozenset(clusters), frozenset(ticked_clusters), frozenset(groups), frozenset(surveyed_clusters))


def readable_records(records: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Split stream records into the readable records, and one error text for each unreadable record. With unreadable
    records split off, a malformed stream record cannot block the processing of a whole batch.
    """
    valid_records, problem_texts = [], []
    for record in records:
        try:
            wake_of([record])
        except Quarantined as error:
            problem_texts.append(str(error))
        else:
            valid_records.append(record)
    return valid_records, problem_texts


def _kind_and_name(image: Mapping[str, Any]) -> tuple[str, str]:
    try:
        item_kind, _, item_name = image["pk"]["S"].partition("#")
    except (KeyError, TypeError, AttributeError) as error:
        raise Quarantined(f"a DynamoDB stream record has no key: {error!r}") from error
    return item_kind, item_name


def _node_of_image(image: Mapping[str, Any]) -> StoredNode:
    try:
        return node_of(image)
    except (GiveUp, KeyError, TypeError, ValueError) as error:
        raise Quarantined(
            f"the stream record of {image['pk']['S']} cannot be read: {' '.join(str(error).split())[:500]}"
        ) from error


def notice_item(message: str, notice: StoredNotice, version: int, expires: float) -> Item:
    fields: Item = {"state": {"S": notice.state}, "at": {"N": str(notice.at)}, "expires": {"N": str(int(expires))}}
    return {**notice_key(message), **fields, **_common_attributes(version, wake=False)}


def notice_of(item: Mapping[str, Any]) -> StoredNotice:
    format_of(item)
    return StoredNotice(item["state"]["S"], float(item["at"]["N"]), int(item["version"]["N"]))


def _common_attributes(version: int, wake: bool) -> Item:
    return {"version": {"N": str(version)}, "wake": {"BOOL": wake}, **format_attribute()}
