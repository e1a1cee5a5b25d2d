"""The text of an entry of the audit trail, for the terminal and the dashboard. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.cli.text.words import moment
from dyntrain.controller.core.history.trail import Entry, Metered, StatusChanged

_OTHER_PARTS = frozenset({"kind", "instance", "detail"})  # fields with parts of their own in the text
_LONG_FIELDS = frozenset({"inputs"})  # the inputs of a pool's decision, for `pool plan --from-file`


@dataclass(frozen=True)
class EntryText:
    """The parts of an entry's text. `what`: the statuses before and after a change, or the fields without a part of
    their own.
    """

    kind: str
    instance: str
    what: str
    detail: str


def entry_text(entry: Entry, *, wide: bool = False) -> EntryText:
    """The parts of the entry's text. `wide`: also the fields that are too long for one line."""
    if isinstance(entry, StatusChanged):
        change = f"{entry.before or 'unknown'} -> {entry.after}"
    elif isinstance(entry, Metered):
        change = f"{entry.role} {entry.type} {entry.market} {entry.state} since {moment(entry.since)}"
    else:
        skipped = _OTHER_PARTS if wide else _OTHER_PARTS | _LONG_FIELDS
        change = " ".join(f"{name}={value}" for name, value in entry.fields().items() if name not in skipped and value)
    return EntryText(entry.kind, entry.instance, change, " ".join(entry.detail.split()))
