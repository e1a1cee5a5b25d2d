"""Parse API calls that clients send over HTTP, and build answers in AWS's formats.

EC2, Auto Scaling and the older protocol of SQS use query requests: form-encoded parameters and answers in XML. SSM,
DynamoDB and EventBridge use requests and answers in JSON.
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

_CREDENTIAL_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
AUTO_SCALING_XML_NAMESPACE = "http://autoscaling.amazonaws.com/doc/2011-01-01/"


@dataclass(frozen=True)
class ApiCall:
    """A client's call of an AWS API, as parsed from the client's HTTP request."""

    service: str  # the signing name: ec2, autoscaling, ssm, dynamodb or events
    action: str  # the name of the API operation
    region: str
    form: dict[str, str]  # the parameters of a query request
    document: dict[str, Any]  # the body of a JSON request

    def list_values(self, prefix: str) -> list[str]:
        """The values of a list parameter of a query request, in the list's order. The values have the keys `prefix.1`,
        `prefix.2`, ... or `prefix.member.1`, ...
        """
        numbered_values = []
        for key, value in self.form.items():
            list_name, _, position_text = key.rpartition(".")
            if position_text.isdecimal() and list_name in (prefix, f"{prefix}.member"):
                numbered_values.append((int(position_text), value))
        return [value for _, value in sorted(numbered_values)]

    def integer_parameter(self, name: str) -> int | None:
        value = self.form.get(name)
        return int(value) if value is not None and value.lstrip("-").isdecimal() else None


@dataclass(frozen=True)
class ApiAnswer:
    status: int  # the HTTP status code
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def parse_call(authorization: str, target: str, content_type: str, body: bytes) -> ApiCall:
    """Parse a request. No request raises an error: a request that cannot be parsed becomes an `ApiCall` with empty
    fields. The AWS emulator moto still receives the unchanged request.
    """
    credential_scope = _CREDENTIAL_SCOPE.search(authorization)
    region, service = (credential_scope[1], credential_scope[2]) if credential_scope else ("", "")
    if target:
        try:
            document = json.loads(body or b"{}")
        except ValueError:
            document = {}
        return ApiCall(service, target.rpartition(".")[2], region, {}, document if isinstance(document, dict) else {})
    form: dict[str, str] = {}
    if content_type.startswith("application/x-www-form-urlencoded"):
        form = dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return ApiCall(service, form.get("Action", ""), region, form, {})


def encode_form(form: dict[str, str]) -> bytes:
    return urllib.parse.urlencode(form).encode()


def refusal_answer(call: ApiCall, refusal: ApiError) -> ApiAnswer:
    """The error answer for a refused call, in the format of the call's service."""
    request_id = str(uuid.uuid4())
    if not call.form:
        body = json.dumps({"__type": refusal.code, "message": refusal.message}).encode()
        return ApiAnswer(
            refusal.status,
            "application/x-amz-json-1.1",
            body,
            (("x-amzn-RequestId", request_id), ("x-amzn-ErrorType", refusal.code)),
        )
    code, message = escape(refusal.code), escape(refusal.message)
    error_xml = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    if call.service == "ec2":
        inner_xml = f"<Error><Code>{escape(refusal.code)}</Code><Message>{escape(refusal.message)}</Message></Error>"
        xml_text = f"<Response><Errors>{inner_xml}</Errors><RequestID>{request_id}</RequestID></Response>"
    else:
        inner_xml = f"{error_xml}<RequestId>{request_id}</RequestId>"
        xml_text = f'<ErrorResponse xmlns="{AUTO_SCALING_XML_NAMESPACE}">{inner_xml}</ErrorResponse>'
    return ApiAnswer(refusal.status, "text/xml", xml_text.encode())


def auto_scaling_answer(action: str, fields: dict[str, str] | None = None, element: str = "") -> ApiAnswer:
    """An XML answer to an API call of Auto Scaling. If `element` is not empty, an XML element with the name `element`
    encloses the `fields`.
    """
    inner_xml = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in (fields or {}).items())
    if element:
        inner_xml = f"<{element}>{inner_xml}</{element}>"
    metadata_xml = f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
    result_xml = f"<{action}Result>{inner_xml}</{action}Result>"
    xml_text = f'<{action}Response xmlns="{AUTO_SCALING_XML_NAMESPACE}">{result_xml}{metadata_xml}</{action}Response>'
    return ApiAnswer(200, "text/xml", xml_text.encode())
