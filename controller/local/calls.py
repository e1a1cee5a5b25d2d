"""Parse API calls that come over HTTP, and build answers in AWS's formats.

EC2, Auto Scaling and the older protocol of SQS use query requests: form-encoded parameters and answers in XML. SSM,
DynamoDB and EventBridge use JSON.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from dyntrain.controller.local.errors import ApiError

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
AUTO_SCALING_NAMESPACE = "http://autoscaling.amazonaws.com/doc/2011-01-01/"


@dataclass(frozen=True)
class Call:
    """An API call. `service` is the signing name (ec2, autoscaling, ssm, dynamodb, events). `form` has the parameters
    of a query request, and `document` the body of a JSON request.
    """

    service: str
    action: str
    region: str
    form: dict[str, str]
    document: dict[str, Any]

    def values(self, prefix: str) -> list[str]:
        """The values of a query list in order: `prefix.1`, `prefix.2`, ... or `prefix.member.1`, ..."""
        numbered = []
        for key, value in self.form.items():
            name, _, number = key.rpartition(".")
            if number.isdecimal() and name in (prefix, f"{prefix}.member"):
                numbered.append((int(number), value))
        return [value for _, value in sorted(numbered)]

    def number(self, name: str) -> int | None:
        value = self.form.get(name)
        return int(value) if value is not None and value.lstrip("-").isdecimal() else None


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def parse(authorization: str, target: str, content_type: str, body: bytes) -> Call:
    """Parse a request. Never raises: a request that cannot be parsed gets empty fields, and moto then receives the
    unchanged request.
    """
    scope = _SCOPE.search(authorization)
    region, service = (scope[1], scope[2]) if scope else ("", "")
    if target:
        try:
            document = json.loads(body or b"{}")
        except ValueError:
            document = {}
        return Call(service, target.rpartition(".")[2], region, {}, document if isinstance(document, dict) else {})
    form: dict[str, str] = {}
    if content_type.startswith("application/x-www-form-urlencoded"):
        form = dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return Call(service, form.get("Action", ""), region, form, {})


def encode_form(form: dict[str, str]) -> bytes:
    return urllib.parse.urlencode(form).encode()


def refused(call: Call, refusal: ApiError) -> Answer:
    """The refusal as an error answer in the format of the call's service."""
    request_id = str(uuid.uuid4())
    if not call.form:
        body = json.dumps({"__type": refusal.code, "message": refusal.message}).encode()
        return Answer(
            refusal.status,
            "application/x-amz-json-1.1",
            body,
            (("x-amzn-RequestId", request_id), ("x-amzn-ErrorType", refusal.code)),
        )
    code, message = escape(refusal.code), escape(refusal.message)
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    if call.service == "ec2":
        inner = f"<Error><Code>{escape(refusal.code)}</Code><Message>{escape(refusal.message)}</Message></Error>"
        text = f"<Response><Errors>{inner}</Errors><RequestID>{request_id}</RequestID></Response>"
    else:
        inner = f"{error}<RequestId>{request_id}</RequestId>"
        text = f'<ErrorResponse xmlns="{AUTO_SCALING_NAMESPACE}">{inner}</ErrorResponse>'
    return Answer(refusal.status, "text/xml", text.encode())


def auto_scaling_answer(action: str, fields: dict[str, str] | None = None, element: str = "") -> Answer:
    """An XML answer of Auto Scaling. If `element` is not empty, an element of that name encloses the `fields`."""
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in (fields or {}).items())
    if element:
        inner = f"<{element}>{inner}</{element}>"
    meta = f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
    result = f"<{action}Result>{inner}</{action}Result>"
    text = f'<{action}Response xmlns="{AUTO_SCALING_NAMESPACE}">{result}{meta}</{action}Response>'
    return Answer(200, "text/xml", text.encode())
