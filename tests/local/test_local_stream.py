"""The table's stream reaches the stream handler in batches, at least once, and a poison record does not block it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dyntrain.controller.local.cloud.embedded import Cloud
from local_toycloud import QUIET, ToyCloud, toy_cloud
from waiting import wait_for


def put(cloud: Cloud, item: str, **more: Any) -> None:
    cloud.client("dynamodb").put_item(TableName=cloud.table, Item={"pk": {"S": item}, "sk": {"S": "facts"}, **more})


def handled(toy: ToyCloud) -> list[tuple[str, str]]:
    """(item, value) of every record that the handler got, in its order."""
    records = [record for batch in toy.payloads("on_records") for record in batch]
    images = [record["dynamodb"]["NewImage"] for record in records]
    return [(image["pk"]["S"], image.get("value", {}).get("S", "")) for image in images]


def test_records_come_batched_and_each_items_changes_in_order(toy: ToyCloud) -> None:
    wanted = [(f"node#{item}", str(value)) for value in range(5) for item in range(6)]
    for item, value in wanted:
        put(toy.cloud, item, value={"S": value})
    wait_for(lambda: len(handled(toy)) >= len(wanted))
    assert sorted(handled(toy)) == sorted(wanted)
    assert len(toy.notes("on_records")) < len(wanted)
    for item in {item for item, _ in wanted}:
        assert [value for other, value in handled(toy) if other == item] == list("01234")
    record = toy.payloads("on_records")[0][0]
    assert f"table/{toy.cloud.table}/stream/" in record["eventSourceARN"]
    assert (record["eventName"], record["dynamodb"]["StreamViewType"]) == ("INSERT", "NEW_IMAGE")
    assert isinstance(record["dynamodb"]["ApproximateCreationDateTime"], float)


def test_records_that_the_filter_excludes_wake_nobody(toy: ToyCloud) -> None:
    """Acknowledgements must not make the controller run round after round."""
    put(toy.cloud, "quiet", wake={"BOOL": False}, value={"S": "no"})
    put(toy.cloud, "loud", wake={"BOOL": True}, value={"S": "yes"})
    put(toy.cloud, "plain", value={"S": "yes"})
    wait_for(lambda: len(handled(toy)) == 2)
    assert sorted(item for item, _ in handled(toy)) == ["loud", "plain"]


def test_a_poison_record_ends_alone_in_the_dead_letters(toy: ToyCloud) -> None:
    for number in range(6):
        put(toy.cloud, f"node#{number}", **({"poison": {"S": "yes"}} if number == 3 else {}))
    path = toy.cloud.state_dir / "dead-letters.jsonl"
    letters = wait_for(lambda: path.exists() and [json.loads(line) for line in path.read_text().splitlines()])
    assert [
        record["dynamodb"]["Keys"]["pk"]["S"] for letter in letters for record in letter["requestPayload"]["Records"]
    ] == ["node#3"]
    put(toy.cloud, "after")
    clean = {f"node#{number}" for number in range(6)} | {"after"}  # the lane of the poison may be the later one
    wait_for(lambda: {item for item, _ in handled(toy)} >= clean)
    assert {item for item, _ in handled(toy)} == clean


def test_batches_are_delivered_twice_when_told_to(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, replace(QUIET, duplicate_fraction=1.0)) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        put(cloud, "node#1")
        wait_for(lambda: len(toy.notes("on_records")) == 2)
        first, second = toy.payloads("on_records")
    assert first == second


def test_the_table_has_the_deployed_definitions_index_and_ttl(toy: ToyCloud) -> None:
    client = toy.cloud.client("dynamodb")
    described = client.describe_table(TableName=toy.cloud.table)["Table"]
    assert [index["IndexName"] for index in described["GlobalSecondaryIndexes"]] == ["by-cluster"]
    lived = client.describe_time_to_live(TableName=toy.cloud.table)["TimeToLiveDescription"]
    assert lived["AttributeName"] == "expires"
