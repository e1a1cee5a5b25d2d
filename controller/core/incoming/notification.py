"""Turn a message of SNS about an alarm into the text that the operators receive. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dyntrain.controller.contract.errors import Quarantined
from dyntrain.controller.contract.webhook import Format

VERSION = 1  # of the format json
MAX_TEXT_CHARACTERS = 3000  # characters of a message, before escaping; Slack cuts messages at 4000


@dataclass(frozen=True)
class Notification:
    """A message to the operators. `id` stays the same if the message is delivered again. `metric` is the alarm's metric
    (`decisions.alarms`), or "" if the message is no CloudWatch alarm.
    """

    id: str  # the message's id in SNS
    stage: str  # name of the controller's stage
    subject: str  # first line of the message
    text: str  # the message itself
    metric: str = ""  # the alarm's metric; "": no alarm
    region: str = ""  # AWS region of the alarm
    at: str = ""  # ISO 8601


def notification_of(record: Mapping[str, Any], stage: str) -> Notification:
    """Parse one record of the event with which SNS invokes a Lambda function. Raises Quarantined if the record is no
    message of SNS.

    https://docs.aws.amazon.com/lambda/latest/dg/with-sns.html
    """
    message = record.get("Sns")
    if not isinstance(message, Mapping) or not isinstance(message.get("MessageId"), str):
        raise Quarantined(
            "the notification cannot be read, because Sns.MessageId is missing: the event is no message of SNS"
        )
    text, sent_at = str(message.get("Message", "")), str(message.get("Timestamp", ""))
    common_fields = {"id": message["MessageId"], "stage": stage, "at": sent_at}
    try:
        alarm = json.loads(text)
    except ValueError:
        alarm = None
    if not isinstance(alarm, dict) or "AlarmName" not in alarm:
        return Notification(
            **common_fields, subject=_one_line(message.get("Subject") or "dyntrain"), text=text[:MAX_TEXT_CHARACTERS]
        )
    alarm_trigger = alarm.get("Trigger")
    metric = str(alarm_trigger.get("MetricName", "")) if isinstance(alarm_trigger, dict) else ""
    return Notification(
        **{**common_fields, "at": str(alarm.get("StateChangeTime", sent_at))},
        subject=_one_line(f"{alarm.get('NewStateValue', 'ALARM')}: {metric or alarm['AlarmName']}"),
        text=str(alarm.get("AlarmDescription") or alarm.get("NewStateReason") or "")[:MAX_TEXT_CHARACTERS],
        metric=metric,
        region=str(alarm.get("Region", "")),
    )


def payload_of(notification: Notification, message_format: Format) -> dict[str, Any]:
    """The JSON that is posted to the webhook. In the format `slack` the payload contains only the field `text`, which
    Slack's incoming webhooks and compatible services accept.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """
    if message_format == "json":
        return {"version": VERSION, **asdict(notification)}
    stage_and_region = " ".join(part for part in (notification.stage, notification.region) if part)
    text = f"{notification.subject} ({stage_and_region})\n{notification.text}"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
