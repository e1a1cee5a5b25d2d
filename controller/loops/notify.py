"""Sends alarms to the deployment stage's webhook. The sender is a Lambda function of its own, so that no decision
waits for the webhook or fails because of the webhook.

The steps for each message:
1. gather: the webhook, if one is set, and whether the message was sent before
2. claim the message, so that only one of two simultaneous deliveries sends it
3. send the message, and store that it was sent; a failed message is released for Lambda's next attempt.

After a crash between sending and storing, the message is sent twice. The receiver recognises the repeated message by
its `id`.
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
    at: float  # the time of this state
    version: int  # of the stored item, for conditional writes


class Notices(Protocol):
    """The store of notices, which record sent messages and are kept for a day."""

    def get(self, message: str) -> StoredNotice | None:
        """Read one notice with a strongly consistent read."""

    def put(self, message: str, notice: StoredNotice) -> None:
        """Replace the stored notice if the stored notice has the version `notice.version`. Version 0 means that no
        notice is stored yet. Raises Conflict if the stored notice has a different version.
        """


class Secrets(Protocol):
    def webhook(self) -> str | None:
        """Read the webhook's setting, or return None if no webhook is set. Raises Misconfigured when the webhook's
        setting is not stored as an encrypted secret.
        """


class Sender(Protocol):
    def post(self, webhook: Webhook, payload: Mapping[str, Any]) -> None:
        """Post the payload to the webhook. Raises RetryLater or GiveUp. The texts of the errors do not contain the
        webhook's secret address.
        """


@dataclass(frozen=True)
class NotifyPorts:
    notices: Notices
    secrets: Secrets
    sender: Sender
    clock: Clock


@dataclass(frozen=True)
class NotifyResult:
    sent: int = 0  # number of messages sent now
    repeated: int = 0  # number of messages that were sent before
    skipped: str = ""  # the reason why nothing was sent


def notify(ports: NotifyPorts, event: Mapping[str, Any], stage: str) -> NotifyResult:
    """Send each alarm message in the event to the webhook, unless the message was sent before. Raises RetryLater or
    GiveUp if sending fails.
    """
    webhook_setting = ports.secrets.webhook()
    if webhook_setting is None:
        return NotifyResult(skipped="the stage has no webhook")
    webhook = Webhook.of(webhook_setting)
    sent_count = repeated_count = 0
    for record in event.get("Records", ()):
        notification = notification_of(record, stage)
        claimed_version = _claim_message(ports, notification.id)
        if claimed_version is None:
            repeated_count += 1
            continue
        try:
            ports.sender.post(webhook, payload_of(notification, webhook.format))
        except ControllerError:
            _store_outcome(ports, notification.id, claimed_version, "failed")
            raise
        _store_outcome(ports, notification.id, claimed_version, "sent")
        log.info("notified", extra={"message_id": notification.id, "subject": notification.subject})
        sent_count += 1
    return NotifyResult(sent_count, repeated_count)


def _claim_message(ports: NotifyPorts, message: str) -> int | None:
    """Claim the message for sending by writing its notice, and return the new version of the notice, which the caller
    later replaces by the outcome of sending. Returns None if the message was already sent or is being sent.
    """
    now = ports.clock()
    stored_notice = ports.notices.get(message)
    if stored_notice is not None and (
        stored_notice.state == "sent" or (stored_notice.state == "claimed" and now - stored_notice.at < CLAIM_SECONDS)
    ):
        return None
    version = stored_notice.version if stored_notice is not None else 0
    try:
        ports.notices.put(message, StoredNotice("claimed", now, version))
    except Conflict:
        return None
    return version + 1


def _store_outcome(ports: NotifyPorts, message: str, version: int, state: SentState) -> None:
    """Store whether the message was sent. If storing fails, the message may be sent a second time."""
    try:
        ports.notices.put(message, StoredNotice(state, ports.clock(), version))
    except ControllerError as error:
        log.warning("not remembered", extra={"message_id": message, "problem": str(error)})
