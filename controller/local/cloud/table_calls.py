"""Pass frequent API calls for DynamoDB tables directly to moto's request handler.

The usual path through moto takes half a second for a query of a thousand items. Because calls run one at a time, a slow
call delays all later calls of a burst. DynamoDB itself answers in milliseconds. A call that moto's handler refuses has
changed nothing, so moto's usual path can repeat the call and return the error.
"""

from __future__ import annotations

import json

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import ApiAnswer, ApiCall
from moto.dynamodb.models.utilities import DynamoJsonEncoder
from moto.dynamodb.responses import DynamoHandler

_HANDLER_METHOD_BY_ACTION = {
    "GetItem": "get_item",
    "BatchGetItem": "batch_get_item",
    "PutItem": "put_item",
    "Query": "query",
}


def table_answer(account: Account, call: ApiCall) -> ApiAnswer | None:
    """The answer to a frequent call, or None for a call that moto's usual path should answer, such as a refused call.
    The caller must hold the account's lock.
    """
    handler_method = _HANDLER_METHOD_BY_ACTION.get(call.action) if call.service == "dynamodb" else None
    if handler_method is None:
        return None
    handler = DynamoHandler()
    handler.current_account, handler.region = account.number, account.region
    handler.body = handler.params = call.document
    try:
        result = getattr(handler, handler_method)().result
    except Exception:  # noqa: BLE001 - moto's usual path repeats the call and words the error
        return None
    return ApiAnswer(200, "application/x-amz-json-1.0", json.dumps(result, cls=DynamoJsonEncoder).encode())
