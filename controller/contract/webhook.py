"""The webhook for alarms besides the mail: one secret of a stage, which the operator writes. Whoever has the address
can write into the channel behind it, so it appears in no log and no error.
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
    """The parameter's name. Not below /dyntrain/, which nodes and the other functions may read in part."""
    return f"/dyntrain-webhook/{stage}"


@dataclass(frozen=True)
class Webhook:
    """A webhook's parsed address. `path` is all that follows the host, the secret part for most services."""

    host: str
    port: int
    path: str = field(repr=False)
    format: Format = "json"

    @classmethod
    def of(cls, text: str) -> Webhook:
        """Parse an address, or {"url": ..., "format": "slack"}. Raises Misconfigured, without the address in it."""
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
