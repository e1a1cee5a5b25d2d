"""The webhook that receives alarms in addition to mail. The operator stores the webhook's address as a secret of the
stage.

Anyone with the address can post to the channel. So the address appears in no log and no error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from dyntrain.controller.contract.errors import Misconfigured

Format = Literal["json", "slack"]
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")


def webhook_parameter(stage: str) -> str:
    """The name of the webhook's parameter. The name is not below /dyntrain/, where nodes and other functions
    may read.
    """
    return f"/dyntrain-webhook/{stage}"


@dataclass(frozen=True)
class Webhook:
    """A webhook's parsed address. `path` is everything after the host, which most services keep secret."""

    host: str
    port: int
    path: str = field(repr=False)
    format: Format = "json"

    @classmethod
    def of(cls, text: str) -> Webhook:
        """Parse an address, or {"url": ..., "format": "slack"}. Raises Misconfigured without the address in the
        message.
        """
        fields: Any = {"url": text.strip()}
        if text.lstrip().startswith("{"):
            try:
                fields = json.loads(text)
            except ValueError:
                raise Misconfigured("the webhook is no JSON object with url and format") from None
        url, kind = fields.get("url"), fields.get("format", "json")
        if not isinstance(url, str) or set(fields) - {"url", "format"}:
            raise Misconfigured("the webhook is no JSON object with url and format")
        if kind not in ("json", "slack"):
            raise Misconfigured("the webhook's format is neither json nor slack")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:
            raise Misconfigured("the webhook's address cannot be read") from None
        if parts.scheme != "https" or not _HOST.fullmatch(host) or parts.username is not None or not url.isprintable():
            raise Misconfigured("the webhook's address has to be https://HOST/..., without a user name")
        return cls(host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), kind)
