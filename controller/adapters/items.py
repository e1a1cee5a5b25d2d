"""The layout of the table's items, and how they read in a stream record, which has the same shape.

Facts are one JSON string (DynamoDB has no floats), beside it the few attributes that indexes, filters and conditions need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from controller.errors import Quarantined
from controller.facts import NodeFacts
from controller.groups import GroupFacts
from controller.job import JobFacts
from controller.ports import StoredGroup, StoredMembership, StoredNode, Wake
from controller.target import Membership

Item = dict[str, Any]


def node_key(instance: str) -> Item:
    return {"pk": {"S": f"node#{instance}"}, "sk": {"S": "facts"}}


def job_key(cluster: str) -> Item:
    return {"pk": {"S": f"job#{cluster}"}, "sk": {"S": "report"}}


def group_key(group: str) -> Item:
    return {"pk": {"S": f"group#{group}"}, "sk": {"S": "facts"}}


def group_item(facts: GroupFacts, version: int, wake: bool) -> Item:
    item = {**group_key(facts.group), "facts": {"S": facts.model_dump_json(exclude_defaults=True)}, **_written(version, wake)}
    if facts.named is not None and facts.named.cluster:
        item["cluster"] = {"S": facts.named.cluster}
    return item


def group_of(item: Mapping[str, Any]) -> StoredGroup:
    return StoredGroup(GroupFacts.model_validate_json(item["facts"]["S"]), int(item["version"]["N"]))


def cluster_key(cluster: str) -> Item:
    return {"pk": {"S": f"cluster#{cluster}"}, "sk": {"S": "target"}}


def node_item(facts: NodeFacts, version: int, wake: bool, expires: float | None) -> Item:
    item = {**node_key(facts.instance), "facts": {"S": facts.model_dump_json(exclude_defaults=True)}, **_written(version, wake)}
    if facts.named is not None:
        item["cluster"] = {"S": facts.named.cluster}
    if expires is not None:
        item["expires"] = {"N": str(int(expires))}
    return item


def node_of(item: Mapping[str, Any]) -> StoredNode:
    pending = bool(item.get("wake", {}).get("BOOL"))
    return StoredNode(NodeFacts.model_validate_json(item["facts"]["S"]), int(item["version"]["N"]), pending)


def job_item(cluster: str, job: JobFacts, version: int, wake: bool) -> Item:
    return {**job_key(cluster), "job": {"S": job.model_dump_json()}, **_written(version, wake)}


def job_of(item: Mapping[str, Any]) -> tuple[JobFacts, int]:
    return JobFacts.model_validate_json(item["job"]["S"]), int(item["version"]["N"])


def membership_item(cluster: str, stored: StoredMembership, version: int) -> Item:
    """`members` is the full ordered list: what `Target.pointer` leads the coordinator to."""
    membership = stored.membership
    return {
        **cluster_key(cluster),
        "revision": {"N": str(membership.revision)},
        "members": {"L": [{"S": instance} for instance in membership.members]},
        "membership": {"S": membership.model_dump_json(exclude={"members"})},
        "published": {"N": str(stored.published)},
        **_written(version, wake=False),
    }


def membership_of(item: Mapping[str, Any]) -> StoredMembership:
    fields = {**json.loads(item["membership"]["S"]), "members": [entry["S"] for entry in item["members"]["L"]]}
    return StoredMembership(Membership.model_validate(fields), int(item["published"]["N"]), int(item["version"]["N"]))


def tick_item(cluster: str, at: float) -> Item:
    return {"pk": {"S": f"tick#{cluster}"}, "sk": {"S": "tick"}, "at": {"N": f"{at:.3f}"}, "wake": {"BOOL": True}}


def wake_of(records: Sequence[Mapping[str, Any]]) -> Wake:
    """What stream records (`dynamodb` of each, as they come) ask for; of several images of a node the newest counts.

    Raises Quarantined for the first record that cannot be read; `readable` sets those aside.
    """
    nodes: dict[str, StoredNode] = {}
    clusters, ticked, groups = set(), set(), set()
    for record in records:
        image = record.get("NewImage")
        if not image or not image.get("wake", {}).get("BOOL"):
            continue
        kind, name = _about(image)
        if kind == "node":
            node = _image(image)
            if name not in nodes or nodes[name].version < node.version:
                nodes[name] = node
        elif kind == "job":
            clusters.add(name)
        elif kind == "tick":
            ticked.add(name)
        elif kind == "group":
            groups.add(name)
    return Wake(nodes, frozenset(clusters), frozenset(ticked), frozenset(groups))


def readable(records: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The records that can be read, and what is wrong with the others: one poison record must not keep a batch from being handled."""
    good, problems = [], []
    for record in records:
        try:
            wake_of([record])
        except Quarantined as error:
            problems.append(str(error))
        else:
            good.append(record)
    return good, problems


def _about(image: Mapping[str, Any]) -> tuple[str, str]:
    try:
        kind, _, name = image["pk"]["S"].partition("#")
    except (KeyError, TypeError, AttributeError) as error:
        raise Quarantined(f"a record without a key: {error!r}") from error
    return kind, name


def _image(image: Mapping[str, Any]) -> StoredNode:
    try:
        return node_of(image)
    except (KeyError, TypeError, ValueError) as error:
        raise Quarantined(f"the record of {image['pk']['S']} cannot be read: {' '.join(str(error).split())[:500]}") from error


def _written(version: int, wake: bool) -> Item:
    return {"version": {"N": str(version)}, "wake": {"BOOL": wake}}
