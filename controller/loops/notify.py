"""Sends alarms to the stage's webhook, in a separate function: no decision waits for the webhook, or fails with it.

1. gather: the webhook, if one is set, and whether the message was sent before
2. claim the message, so that only one of two simultaneous deliveries sends it
3. send the message, and store that it was sent; a failed message is released for Lambda's next attempt

After a crash between sending and storing, the message is sent twice. The receiver recognises it by its `id`.
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
    """Records of sent messages, kept for a day."""

    def get(self, message: str) -> StoredNotice | None:
        """Read one notice, consistently."""

    def put(self, message: str, notice: StoredNotice) -> None:
        """Write over `notice.version`; 0: no notice exists. Raises Conflict."""


class Secrets(Protocol):
    def webhook(self) -> str | None:
        """The webhook's setting. Raises Misconfigured when it is not stored as a secret."""


class Sender(Protocol):
    def post(self, webhook: Webhook, payload: Mapping[str, Any]) -> None:
        """Post the payload. Raises RetryLater or GiveUp, whose messages do not contain the webhook's address."""


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
    """Send the alarm, unless it was sent before. Raises RetryLater or GiveUp if that fails."""
    secret = ports.secrets.webhook()
    if secret is None:
        return Notified(skipped="the stage has no webhook")
    webhook = Webhook.of(secret)
    sent = repeated = 0
    for record in event.get("Records", ()):
        notification = notification_of(record, stage)
        claim = _claim(ports, notification.id)
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


def _claim(ports: NotifyPorts, message: str) -> int | None:
    """Return the version over which to store the outcome; None for a message that is sent or being sent."""
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
