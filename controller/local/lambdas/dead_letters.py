"""Store Lambda invocations that failed at every attempt, in a file and in the SQS queue that the function's stack
names.

The message body has the format of Lambda's on-failure destination:
https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.events import timestamp


class DeadLetters:
    def __init__(self, account: Account, path: Path) -> None:
        self._account = account
        self._path = path
        self._lock = threading.Lock()
        self._destinations: Mapping[str, str] = {}

    def set_destinations(self, destinations: Mapping[str, str]) -> None:
        """Set, for each function, the ARN of the SQS queue for failed invocations. An empty ARN means that the function
        has no queue.
        """
        self._destinations = destinations

    def store(self, function: str, request_id: str, event: Any, attempts: int, error_type: str, error: str) -> None:
        failed_at = time.time()
        dead_letter = {
            "version": "1.0",
            "timestamp": timestamp(failed_at),
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
        message_body = json.dumps(dead_letter)
        with self._lock, self._path.open("a", encoding="utf-8") as letters_file:
            letters_file.write(message_body + "\n")
        if queue_name := self._destinations.get(function, "").rpartition(":")[2]:
            with self._account.lock:
                self._account.sqs.send_message(queue_name, message_body)
