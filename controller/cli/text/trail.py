"""The text of an entry of the audit trail, for the terminal and the dashboard. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.cli.text.words import moment
from dyntrain.controller.core.history.trail import Entry, Metered, StatusChanged

_FIELDS_WITH_OWN_PART = frozenset({"kind", "instance", "detail"})  # fields with parts of their own in the text
_LONG_FIELDS = frozenset({"inputs"})  # the inputs of a reserved pool's decision, for `pool plan --from-file`


@dataclass(frozen=True)
class EntryText:  # of an entry of the audit trail
    """The text of an entry of the audit trail, in four parts."""

    kind: str  # of the entry
    instance: str  # instance id, or "" for an entry about no instance
    what: str  # the statuses before and after a change, or all fields except kind, instance and detail
    detail: str


def entry_text(entry: Entry, *, wide: bool = False) -> EntryText:
    """The text of an entry of the audit trail. If `wide` is true, the text includes fields that are too long for one
    line.
    """
    if isinstance(entry, StatusChanged):
        change_text = f"{entry.before or 'unknown'} -> {entry.after}"
    elif isinstance(entry, Metered):
        change_text = f"{entry.role} {entry.type} {entry.market} {entry.state} since {moment(entry.since)}"
    else:
        skipped_fields = _FIELDS_WITH_OWN_PART if wide else _FIELDS_WITH_OWN_PART | _LONG_FIELDS
        change_text = " ".join(
            f"{field}={value}" for field, value in entry.fields().items() if field not in skipped_fields and value
        )
    return EntryText(entry.kind, entry.instance, change_text, " ".join(entry.detail.split()))
