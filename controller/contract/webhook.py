"""The webhook to which alarms are posted, in addition to mail. The operator stores the webhook's address as a secret
SSM parameter of the stage.

Anyone who knows the address can post to the webhook's channel, so no log and no error message contains the webhook's
address.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from dyntrain.controller.contract.errors import Misconfigured

Format = Literal["json", "slack"]  # of the posted message
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")  # a host name or an IP address


def webhook_parameter(stage: str) -> str:
    """The name of the SSM parameter that contains the webhook's address. The name does not begin with /dyntrain/,
    because nodes and other Lambda functions may read all parameters below /dyntrain/.
    """
    return f"/dyntrain-webhook/{stage}"


@dataclass(frozen=True)
class Webhook:
    """The parts of a webhook's address. `path` is everything after the host, and is a secret at most services."""

    host: str  # name of the server
    port: int  # TCP port of the server
    path: str = field(repr=False)  # everything after the host, usually a secret
    format: Format = "json"  # of the posted message

    @classmethod
    def of(cls, text: str) -> Webhook:
        """Parse the address of a webhook, or JSON such as {"url": ..., "format": "slack"}. Raises Misconfigured if the
        address or the JSON is wrong. The error's message does not contain the webhook's address.
        """
        setting_fields: Any = {"url": text.strip()}
        if text.lstrip().startswith("{"):
            try:
                setting_fields = json.loads(text)
            except ValueError:
                raise Misconfigured(
                    "the webhook's setting is wrong: it must be an address, or a JSON object with url and format"
                ) from None
        url, message_format = setting_fields.get("url"), setting_fields.get("format", "json")
        if not isinstance(url, str) or set(setting_fields) - {"url", "format"}:
            raise Misconfigured(
                "the webhook's setting is wrong: it must be an address, or a JSON object with url and format"
            )
        if message_format not in ("json", "slack"):
            raise Misconfigured("the webhook's format is wrong: it must be json or slack")
        try:
            address_parts = urlsplit(url)
            host, port = address_parts.hostname or "", address_parts.port or 443
        except ValueError:
            raise Misconfigured("the webhook's address cannot be read") from None
        if (
            address_parts.scheme != "https"
            or not _HOST.fullmatch(host)
            or address_parts.username is not None
            or not url.isprintable()
        ):
            raise Misconfigured("the webhook's address is wrong: it has to be https://HOST/..., without a user name")
        return cls(
            host,
            port,
            (address_parts.path or "/") + (f"?{address_parts.query}" if address_parts.query else ""),
            message_format,
        )
