"""Frequent calls to the table, passed directly to moto's handler.

DynamoDB answers in milliseconds, from as many machines as it needs. moto takes half a second to route and serialize a
query of a thousand items, in one thread, so that in a burst everything would wait for the emulator. A refused call is
repeated through moto's whole stack, for the error in its proper form: it has changed nothing.
"""

from __future__ import annotations

import json

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import Answer, Call
from moto.dynamodb.models.utilities import DynamoJsonEncoder
from moto.dynamodb.responses import DynamoHandler

_METHODS = {"GetItem": "get_item", "BatchGetItem": "batch_get_item", "PutItem": "put_item", "Query": "query"}


def table_answer(account: Account, call: Call) -> Answer | None:
    """The answer, under the account's lock; None for other calls."""
    method = _METHODS.get(call.action) if call.service == "dynamodb" else None
    if method is None:
        return None
    handler = DynamoHandler()
    handler.current_account, handler.region = account.number, account.region
    handler.body = handler.params = call.document
    try:
        result = getattr(handler, method)().result
    except Exception:  # noqa: BLE001 - whatever it is, moto says it again with the right status and wording
        return None
    return Answer(200, "application/x-amz-json-1.0", json.dumps(result, cls=DynamoJsonEncoder).encode())
