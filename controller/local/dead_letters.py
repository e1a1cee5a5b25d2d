"""Where invocations end whose retries are used up: a file, and an SQS queue that the real CLI can read.

The body is that of Lambda's on-failure destination:
https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from controller.local.account import Account
from controller.local.events import timestamp

QUEUE = "dyntrain-dead-letters"


class DeadLetters:
    def __init__(self, account: Account, path: Path) -> None:
        self._account = account
        self._path = path
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._account.lock:
            self._account.sqs.create_queue(QUEUE, {})

    def put(self, function: str, request_id: str, event: Any, attempts: int, error_type: str, error: str) -> None:
        now = time.time()
        letter = {
            "version": "1.0",
            "timestamp": timestamp(now),
            "requestContext": {
                "requestId": request_id,
                "functionArn": self._account.arn("lambda", f"function:{function}"),
                "condition": "RetriesExhausted",
                "approximateInvokeCount": attempts,
            },
            "requestPayload": event,
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
            "responsePayload": {"errorType": error_type, "errorMessage": error},
        }
        body = json.dumps(letter)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(body + "\n")
        with self._account.lock:
            self._account.sqs.send_message(QUEUE, body)
