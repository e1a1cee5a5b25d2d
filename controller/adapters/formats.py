"""The format number of the table's items, and the conversion of older items.

An item without `format` has format 1. In format 1 the acknowledgements were one map from keys such as `complete:TOKEN`
to a time and a text. A change that older controllers must not ignore gets the next number. An older controller then
refuses the item, rather than write the item back without its new part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.contract.errors import GiveUp

FORMAT = 2

_FIELDS_BY_KIND = {
    "stamp": "stamps",
    "complete": "answers",
    "heartbeat": "heartbeats",
    "protect": "protections",
    "alarm": "alarms",
}


def format_attribute() -> dict[str, Any]:
    """The attribute with the item's format number."""
    return {"format": {"N": str(FORMAT)}}


def format_of(item: Mapping[str, Any]) -> int:
    """The item's format number. Raises GiveUp for a format that this version does not know."""
    number = int(item.get("format", {}).get("N", "1"))
    if number > FORMAT:
        name = item.get("pk", {}).get("S", "an item")
        raise GiveUp(
            f"{name} in the table has format {number}, and this version of dyntrain reads formats up to {FORMAT}: "
            "a newer controller wrote it; deploy that version again, or a later one"
        )
    return number


def facts_of_format_1(facts: dict[str, Any]) -> dict[str, Any]:
    """Convert node facts of format 1 into the present format."""
    acks: dict[str, Any] = {}
    for key, ack in facts.get("acks", {}).items():
        kind, separator, name = key.partition(":")
        at, value = ack["at"], ack.get("value", "")
        if kind in _FIELDS_BY_KIND and separator:
            fields = {"at": at, "result": value} if kind == "complete" else {"at": at, "value": value}
            acks.setdefault(_FIELDS_BY_KIND[kind], {})[name] = fields
        elif kind == "unseen":
            acks[kind] = {"at": at, "times": int(value) if value.isdigit() else 0}
        elif kind == "doubt":
            acks[kind] = {"at": at, "lost": value == "lost"}
        else:
            acks[kind] = {"at": at, "value": value}
    status, cluster_statement = facts.get("acks", {}).get("status"), facts.get("named")
    if status and cluster_statement and status.get("value", "").startswith(("ADDED", "REMOVAL_QUEUED")):
        acks["joined"] = {
            cluster_statement["cluster"]: {"at": status["at"]}
        }  # the node trained before this acknowledgement existed
    return {**facts, "acks": acks}
