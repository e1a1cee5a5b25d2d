"""Features of RunInstances that moto lacks: placement groups, and client tokens, by which a repeated call launches
nothing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from xml.sax.saxutils import escape

from dyntrain.controller.local.calls import Answer, Call
from dyntrain.controller.local.errors import ApiError
from moto.ec2 import utils

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
# https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
# The error codes of placement groups are from this page, not from observed answers:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html


@dataclass(frozen=True)
class AcceptedLaunch:
    form: dict[str, str]
    answer: Answer


class Launches:
    """Launches by client token, and placement groups. The caller holds the account's lock."""

    def __init__(self) -> None:
        self._launched: dict[str, AcceptedLaunch] = {}
        self._placements: dict[str, str] = {}
        utils.filter_dict_attribute_mapping["client-token"] = "client_token"

    def answer(self, call: Call) -> Answer | None:
        """The cloud's own answer, or None when moto should answer. Raises ApiError."""
        if call.service != "ec2":
            return None
        name = call.form.get("GroupName", "")
        match call.action:
            case "RunInstances":
                return self._earlier_answer(call)
            case "CreatePlacementGroup":
                if name in self._placements:
                    raise ApiError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
                self._placements[name] = call.form.get("Strategy", "cluster")
                return _answer(call, "<return>true</return>")
            case "DeletePlacementGroup":
                self._require_group(name)
                del self._placements[name]
                return _answer(call, "<return>true</return>")
            case "DescribePlacementGroups":
                names = call.values("GroupName") or sorted(self._placements)
                items = "".join(self._item(group) for group in names)
                return _answer(call, f"<placementGroupSet>{items}</placementGroupSet>")
        return None

    def remember(self, call: Call, answer: Answer) -> None:
        """Remember a launch that moto accepted."""
        if token := call.form.get("ClientToken"):
            self._launched[token] = AcceptedLaunch(_parameters(call), answer)

    def _earlier_answer(self, call: Call) -> Answer | None:
        if group := call.form.get("Placement.GroupName"):
            self._require_group(group)
        earlier = self._launched.get(call.form.get("ClientToken", ""))
        if earlier is None or call.form.get("DryRun", "false").lower() == "true":
            return None
        if earlier.form != _parameters(call):
            raise ApiError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        return earlier.answer

    def _require_group(self, group: str) -> None:
        if group not in self._placements:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")

    def _item(self, group: str) -> str:
        self._require_group(group)
        fields = {"groupName": group, "state": "available", "strategy": self._placements[group]}
        return "<item>" + "".join(f"<{key}>{escape(value)}</{key}>" for key, value in fields.items()) + "</item>"


def _parameters(call: Call) -> dict[str, str]:
    return {key: value for key, value in call.form.items() if key != "DryRun"}


def _answer(call: Call, inner: str) -> Answer:
    request = f"<requestId>{uuid.uuid4()}</requestId>"
    text = f'<{call.action}Response xmlns="{NAMESPACE}">{request}{inner}</{call.action}Response>'
    return Answer(200, "text/xml", text.encode())
