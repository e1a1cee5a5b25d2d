"""Features of RunInstances that moto lacks: placement groups, and client tokens, with which a repeated call launches no
second instance.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from xml.sax.saxutils import escape

from dyntrain.controller.local.calls import ApiAnswer, ApiCall
from dyntrain.controller.local.errors import ApiError
from moto.ec2 import utils

EC2_XML_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
# https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
# The error codes of placement groups are from this page, not from observed answers:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html


@dataclass(frozen=True)
class AcceptedLaunch:
    form: dict[str, str]  # the parameters of the accepted RunInstances call
    answer: ApiAnswer  # the answer to the accepted RunInstances call


class LaunchFeatures:
    """The accepted launches, by client token, and the placement groups. The caller must hold the account's lock."""

    def __init__(self) -> None:
        self._accepted_launches: dict[str, AcceptedLaunch] = {}
        self._strategy_by_placement_group: dict[str, str] = {}
        utils.filter_dict_attribute_mapping["client-token"] = "client_token"

    def answer_call(self, call: ApiCall) -> ApiAnswer | None:
        """The embedded cloud's own answer to an API call, or None if the emulator moto should answer the call. Raises
        ApiError when the call is refused.
        """
        if call.service != "ec2":
            return None
        placement_group = call.form.get("GroupName", "")
        match call.action:
            case "RunInstances":
                return self._earlier_answer(call)
            case "CreatePlacementGroup":
                if placement_group in self._strategy_by_placement_group:
                    raise ApiError(
                        "InvalidPlacementGroup.Duplicate", f"The placement group '{placement_group}' already exists."
                    )
                self._strategy_by_placement_group[placement_group] = call.form.get("Strategy", "cluster")
                return _xml_answer(call, "<return>true</return>")
            case "DeletePlacementGroup":
                self._check_placement_group_exists(placement_group)
                del self._strategy_by_placement_group[placement_group]
                return _xml_answer(call, "<return>true</return>")
            case "DescribePlacementGroups":
                requested_groups = call.list_values("GroupName") or sorted(self._strategy_by_placement_group)
                items_xml = "".join(self._placement_group_xml(group) for group in requested_groups)
                return _xml_answer(call, f"<placementGroupSet>{items_xml}</placementGroupSet>")
        return None

    def remember_launch(self, call: ApiCall, answer: ApiAnswer) -> None:
        """Remember a launch that moto accepted, so that a repeated call with the same client token gets the same
        answer.
        """
        if client_token := call.form.get("ClientToken"):
            self._accepted_launches[client_token] = AcceptedLaunch(_form_without_dry_run(call), answer)

    def _earlier_answer(self, call: ApiCall) -> ApiAnswer | None:
        if group := call.form.get("Placement.GroupName"):
            self._check_placement_group_exists(group)
        accepted_launch = self._accepted_launches.get(call.form.get("ClientToken", ""))
        if accepted_launch is None or call.form.get("DryRun", "false").lower() == "true":
            return None
        if accepted_launch.form != _form_without_dry_run(call):
            raise ApiError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        return accepted_launch.answer

    def _check_placement_group_exists(self, group: str) -> None:
        if group not in self._strategy_by_placement_group:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")

    def _placement_group_xml(self, group: str) -> str:
        self._check_placement_group_exists(group)
        fields = {"groupName": group, "state": "available", "strategy": self._strategy_by_placement_group[group]}
        return "<item>" + "".join(f"<{key}>{escape(value)}</{key}>" for key, value in fields.items()) + "</item>"


def _form_without_dry_run(call: ApiCall) -> dict[str, str]:
    return {key: value for key, value in call.form.items() if key != "DryRun"}


def _xml_answer(call: ApiCall, inner_xml: str) -> ApiAnswer:
    request_id_xml = f"<requestId>{uuid.uuid4()}</requestId>"
    xml_text = f'<{call.action}Response xmlns="{EC2_XML_NAMESPACE}">{request_id_xml}{inner_xml}</{call.action}Response>'
    return ApiAnswer(200, "text/xml", xml_text.encode())
