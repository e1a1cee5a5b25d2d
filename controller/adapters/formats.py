"""The format number of items in the controller's DynamoDB table, and the conversion of items of an older format.

An item without the attribute `format` has format 1. In format 1, a node's acknowledgements were stored in one map from
keys such as `complete:TOKEN` to a time and a text. Each change of the items' layout that older controllers must not
ignore increases the format number. A controller refuses an item whose format is newer than the controller's own format,
because writing the item back would lose the item's new fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.contract.errors import GiveUp

FORMAT = 2  # the format number that this version writes

_FIELDS_BY_ACK_KIND = {
    "stamp": "stamps",
    "complete": "answers",
    "heartbeat": "heartbeats",
    "protect": "protections",
    "alarm": "alarms",
}


def format_attribute() -> dict[str, Any]:
    """The attribute `format` with the present format number, for an item to be written."""
    return {"format": {"N": str(FORMAT)}}


def format_of(item: Mapping[str, Any]) -> int:
    """The format number of a table item. Raises GiveUp if this version of the controller does not know the format."""
    format_number = int(item.get("format", {}).get("N", "1"))
    if format_number > FORMAT:
        item_name = item.get("pk", {}).get("S", "an item")
        raise GiveUp(
            f"{item_name} in the table has format {format_number}, and this version of dyntrain reads formats up to "
            f"{FORMAT}: a newer controller wrote it; deploy that version again, or a later one"
        )
    return format_number


def facts_of_format_1(facts: dict[str, Any]) -> dict[str, Any]:
    """Convert the stored facts about a node from item format 1 into the present format."""
    acknowledgements: dict[str, Any] = {}
    for key, ack in facts.get("acks", {}).items():
        ack_kind, separator, ack_name = key.partition(":")
        at, value = ack["at"], ack.get("value", "")
        if ack_kind in _FIELDS_BY_ACK_KIND and separator:
            ack_fields = {"at": at, "result": value} if ack_kind == "complete" else {"at": at, "value": value}
            acknowledgements.setdefault(_FIELDS_BY_ACK_KIND[ack_kind], {})[ack_name] = ack_fields
        elif ack_kind == "unseen":
            acknowledgements[ack_kind] = {"at": at, "times": int(value) if value.isdigit() else 0}
        elif ack_kind == "doubt":
            acknowledgements[ack_kind] = {"at": at, "lost": value == "lost"}
        else:
            acknowledgements[ack_kind] = {"at": at, "value": value}
    status_ack, cluster_statement = facts.get("acks", {}).get("status"), facts.get("named")
    if status_ack and cluster_statement and status_ack.get("value", "").startswith(("ADDED", "REMOVAL_QUEUED")):
        acknowledgements["joined"] = {
            cluster_statement["cluster"]: {"at": status_ack["at"]}
        }  # the node trained before this acknowledgement existed
    return {**facts, "acks": acknowledgements}
