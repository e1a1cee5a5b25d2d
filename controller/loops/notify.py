"""Send alarms to the stage's webhook, separately: no decision waits for it, or fails with it.

1. gather: the webhook, if there is one, and whether the message was sent before
2. claim it, so that of two deliveries at once one sends
3. send, and remember that it was sent; what could not be sent is given back for Lambda's next attempt

A function that dies between sending and remembering sends once more: the receiver can tell by the `id`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dyntrain.controller.contract.errors import Conflict, ControllerError
from dyntrain.controller.contract.webhook import Webhook
from dyntrain.controller.core.incoming.notification import notification_of, payload_of
from dyntrain.controller.loops.ports import Clock

log = logging.getLogger("dyntrain.notify")

CLAIM_SECONDS = 45.0  # longer than the function may take
SentState = Literal["claimed", "sent", "failed"]


@dataclass(frozen=True)
class StoredNotice:
    state: SentState
    at: float
    version: int


class Notices(Protocol):
    """Which messages were sent, kept for a day."""

    def get(self, message: str) -> StoredNotice | None:
        """Read one notice, consistently."""

    def put(self, message: str, notice: StoredNotice) -> None:
        """Write over `notice.version`; 0: there is none. Raises Conflict."""


class Secrets(Protocol):
    def webhook(self) -> str | None:
        """The webhook's setting. Raises Misconfigured when it is not stored as a secret."""


class Sender(Protocol):
    def post(self, webhook: Webhook, payload: Mapping[str, Any]) -> None:
        """Post, and return once it was accepted. Raises RetryLater or GiveUp, neither of which contains the address."""


@dataclass(frozen=True)
class NotifyPorts:
    notices: Notices
    secrets: Secrets
    sender: Sender
    clock: Clock


@dataclass(frozen=True)
class Notified:
    sent: int = 0
    repeated: int = 0
    skipped: str = ""


def notify(ports: NotifyPorts, event: Mapping[str, Any], stage: str) -> Notified:
    """Send the alarm, unless it was sent. Raises RetryLater or GiveUp when it could not be."""
    secret = ports.secrets.webhook()
    if secret is None:
        return Notified(skipped="the stage has no webhook")
    webhook = Webhook.of(secret)
    sent = repeated = 0
    for record in event.get("Records", ()):
        notification = notification_of(record, stage)
        claim = _claimed(ports, notification.id)
        if claim is None:
            repeated += 1
            continue
        try:
            ports.sender.post(webhook, payload_of(notification, webhook.format))
        except ControllerError:
            _remember(ports, notification.id, claim, "failed")
            raise
        _remember(ports, notification.id, claim, "sent")
        log.info("notified", extra={"message_id": notification.id, "subject": notification.subject})
        sent += 1
    return Notified(sent, repeated)


def _claimed(ports: NotifyPorts, message: str) -> int | None:
    """The version over which to store the outcome; None: it was sent, or is being sent."""
    now = ports.clock()
    stored = ports.notices.get(message)
    if stored is not None and (
        stored.state == "sent" or (stored.state == "claimed" and now - stored.at < CLAIM_SECONDS)
    ):
        return None
    version = stored.version if stored is not None else 0
    try:
        ports.notices.put(message, StoredNotice("claimed", now, version))
    except Conflict:
        return None
    return version + 1


def _remember(ports: NotifyPorts, message: str, version: int, state: SentState) -> None:
    """Store the outcome. A failure costs one repetition at most."""
    try:
        ports.notices.put(message, StoredNotice(state, ports.clock(), version))
    except ControllerError as error:
        log.warning("not remembered", extra={"message_id": message, "problem": str(error)})
