"""Pass frequent calls to DynamoDB tables directly to moto's handler.

The usual path through moto takes half a second for a query of a thousand items, in one thread; in a burst, every call
would wait. DynamoDB itself answers in milliseconds. A refused call has changed nothing, so moto's usual path repeats
the call and words the error.
"""

from __future__ import annotations

import json

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import Answer, Call
from moto.dynamodb.models.utilities import DynamoJsonEncoder
from moto.dynamodb.responses import DynamoHandler

_METHODS = {"GetItem": "get_item", "BatchGetItem": "batch_get_item", "PutItem": "put_item", "Query": "query"}


def table_answer(account: Account, call: Call) -> Answer | None:
    """The answer to a frequent call, or None for other and for refused calls. The caller holds the account's lock."""
    method = _METHODS.get(call.action) if call.service == "dynamodb" else None
    if method is None:
        return None
    handler = DynamoHandler()
    handler.current_account, handler.region = account.number, account.region
    handler.body = handler.params = call.document
    try:
        result = getattr(handler, method)().result
    except Exception:  # noqa: BLE001 - moto's usual path repeats the call and words the error
        return None
    return Answer(200, "application/x-amz-json-1.0", json.dumps(result, cls=DynamoJsonEncoder).encode())
