"""The table's everyday calls, which the embedded cloud asks of moto's handler itself, answer as DynamoDB does."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_toycloud import ToyCloud

ITEM: dict[str, Any] = {
    "pk": {"S": "node#values"},
    "sk": {"S": "facts"},
    "cluster": {"S": "values"},
    "version": {"N": "3"},
    "wake": {"BOOL": False},
    "members": {"L": [{"S": "i-1"}, {"M": {"rank": {"N": "0"}}}]},
    "raw": {"B": b"\x00\xff"},
}
KEY = {"pk": ITEM["pk"], "sk": ITEM["sk"]}


def test_an_item_comes_back_as_it_was_put_however_it_is_asked_for(toy: ToyCloud) -> None:
    table, name = toy.cloud.client("dynamodb"), toy.cloud.table
    table.put_item(TableName=name, Item=ITEM)
    assert table.get_item(TableName=name, Key=KEY, ConsistentRead=True)["Item"] == ITEM
    assert table.batch_get_item(RequestItems={name: {"Keys": [KEY]}})["Responses"] == {name: [ITEM]}
    page = table.query(
        TableName=name,
        IndexName="by-cluster",
        KeyConditionExpression="cluster = :c",
        ExpressionAttributeValues={":c": ITEM["cluster"]},
    )
    assert page["Items"] == [ITEM]
    assert "Item" not in table.get_item(TableName=name, Key={"pk": {"S": "nothing"}, "sk": {"S": "facts"}})


def test_a_refused_call_is_refused_in_dynamodbs_words_and_changes_nothing(toy: ToyCloud) -> None:
    """The adapters take a lost race from the error's code: any other would end the pass instead of reading again."""
    table, name = toy.cloud.client("dynamodb"), toy.cloud.table
    key = {"pk": {"S": "node#refused"}, "sk": {"S": "facts"}}
    table.put_item(TableName=name, Item={**key, "version": {"N": "1"}})
    with pytest.raises(ClientError) as lost:
        table.put_item(
            TableName=name, Item={**key, "version": {"N": "2"}}, ConditionExpression="attribute_not_exists(pk)"
        )
    with pytest.raises(ClientError) as missing:
        table.get_item(TableName="elsewhere", Key=key)
    assert [error.value.response["Error"]["Code"] for error in (lost, missing)] == [
        "ConditionalCheckFailedException",
        "ResourceNotFoundException",
    ]
    assert table.get_item(TableName=name, Key=key)["Item"]["version"] == {"N": "1"}
