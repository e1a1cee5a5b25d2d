"""The text that people receive about an alarm, from a message of SNS. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dyntrain.controller.contract.errors import Quarantined
from dyntrain.controller.contract.webhook import Format

VERSION = 1
MAX_TEXT_CHARACTERS = 3000  # characters of a message, before escaping; Slack cuts messages at 4000


@dataclass(frozen=True)
class Notification:
    """A message for people. `id` is the same for each delivery of the message. `metric` is the counted metric
    (`decisions.alarms`), or "" for a message that is no CloudWatch alarm.
    """

    id: str
    stage: str
    subject: str
    text: str
    metric: str = ""
    region: str = ""
    at: str = ""


def notification_of(record: Mapping[str, Any], stage: str) -> Notification:
    """Parse one record of SNS's event for Lambda. Raises Quarantined.

    https://docs.aws.amazon.com/lambda/latest/dg/with-sns.html
    """
    message = record.get("Sns")
    if not isinstance(message, Mapping) or not isinstance(message.get("MessageId"), str):
        raise Quarantined("Sns.MessageId is missing: the event is no message of SNS")
    text, at = str(message.get("Message", "")), str(message.get("Timestamp", ""))
    common_fields = {"id": message["MessageId"], "stage": stage, "at": at}
    try:
        alarm = json.loads(text)
    except ValueError:
        alarm = None
    if not isinstance(alarm, dict) or "AlarmName" not in alarm:
        return Notification(
            **common_fields, subject=_one_line(message.get("Subject") or "dyntrain"), text=text[:MAX_TEXT_CHARACTERS]
        )
    trigger = alarm.get("Trigger")
    metric = str(trigger.get("MetricName", "")) if isinstance(trigger, dict) else ""
    return Notification(
        **{**common_fields, "at": str(alarm.get("StateChangeTime", at))},
        subject=_one_line(f"{alarm.get('NewStateValue', 'ALARM')}: {metric or alarm['AlarmName']}"),
        text=str(alarm.get("AlarmDescription") or alarm.get("NewStateReason") or "")[:MAX_TEXT_CHARACTERS],
        metric=metric,
        region=str(alarm.get("Region", "")),
    )


def payload_of(notification: Notification, message_format: Format) -> dict[str, Any]:
    """The payload to post. The format `slack` has the single field that Slack's incoming webhooks and compatible
    services accept.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """
    if message_format == "json":
        return {"version": VERSION, **asdict(notification)}
    origin = " ".join(part for part in (notification.stage, notification.region) if part)
    text = f"{notification.subject} ({origin})\n{notification.text}"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
