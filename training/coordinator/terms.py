"""The claim on the shared volume, which names the job's coordinator, and a journal for each term of a coordinator.

A coordinator may still be alive when another machine's coordinator takes over, so each coordinator writes a journal of
its own. The successor replaces the claim before it reads the earlier journals. A coordinator reads the claim again
after it has written a decision, and before it sends orders about the decision. So each decision of an overtaken
coordinator was either read by its successor or is void. The protocol of claims also works over NFS, as opening a file
by name asks the NFS server.

    journal.jsonl            term 0
    journal-<term>.jsonl     begins with `TermBegun`: the instance, and each earlier journal's number of valid bytes
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dyntrain.training.coordinator.whole_file import write_whole
from dyntrain.training.journal import FORMAT, Entry, TermBegun
from dyntrain.training.ledger import JOURNAL, LineLog, read_lines
from dyntrain.training.records import Format, Record, Unreadable
from pydantic import TypeAdapter

CLAIM_FILE = "claim.json"
_JOURNAL_NAME = re.compile(r"journal-(\d+)\.jsonl")


class TermClaim(Record):
    """A claim to the job: the instance runs the job's coordinator until a later term is claimed."""

    version: int = 1  # version of the claim's format
    term: int  # number of the nomination
    instance: str  # EC2 instance id of the coordinator's node


_CLAIM_FORMAT: Format[TermClaim] = Format("claim to a job", 1, TypeAdapter(TermClaim))


class Overtaken(RuntimeError):
    """Another node holds the job, in this term or a later term; the message names the node."""


def read_journal(ledger: Path) -> list[Entry]:
    """Return the valid journal entries of all terms in order; the list is empty without a journal.

    Raises `records.Unreadable`.
    """
    return _read_all_entries(_valid_sizes(ledger))


def find_holder(entries: list[Entry]) -> str | None:
    """Return the instance whose coordinator wrote the last journal, or None if no term was recorded."""
    return next((entry.instance for entry in reversed(entries) if isinstance(entry, TermBegun)), None)


class TermJournal:
    """The journal of the present coordinator's term.

    `term` is None if only this machine can run the coordinator, as with `dyntrain launch`. `entries` are the valid
    entries of this and all earlier journals, as read by the constructor. `taken_over` is the node that wrote the last
    journal, or None if this node wrote it. Raises Overtaken if another node holds the job, `records.Unreadable` if a
    file has an unknown format, and OSError.
    """

    def __init__(self, ledger: Path, instance: str, term: int | None) -> None:
        self._ledger, self._claim = ledger, (term, instance)
        ledger.mkdir(parents=True, exist_ok=True)
        read_journal(ledger)  # a job that this release cannot read must not be claimed
        if term is not None:
            self._claim_job(term, instance)
        valid_sizes = _valid_sizes(ledger)
        self.entries = _read_all_entries(valid_sizes)
        last_holder = find_holder(self.entries)
        self.taken_over = last_holder if term is not None and last_holder not in (None, instance) else None
        own_journal = _journal_path(ledger, term or 0)
        if any(_term_of(path) > _term_of(own_journal) for path in valid_sizes):
            raise Overtaken(f"this node is nominated for term {term}, but {last_holder} holds the job in a later term")
        self._log = LineLog(own_journal, sync=True)
        if term is not None and not any(isinstance(entry, TermBegun) for entry in _read_entries(own_journal)):
            earlier_sizes = {path.name: size for path, size in valid_sizes.items() if path != own_journal}
            self._log.write(TermBegun(term=term, instance=instance, of=earlier_sizes).line())

    def append(self, entry: Entry) -> None:
        """Write an entry to the journal on disk.

        The entry is valid once this function has returned. Raises Overtaken if another coordinator has claimed the job,
        as the entry may then be void.
        """
        self._log.write(entry.line())
        self.check_claim()

    def check_claim(self) -> None:
        """Check that the claim on the shared volume still names this coordinator.

        Raises Overtaken if the claim names another coordinator.
        """
        try:
            claim = _read_claim(self._ledger)
        except Unreadable as error:  # this coordinator had written a readable claim
            raise Overtaken(str(error)) from error
        if self._claim[0] is not None and claim is not None and claim != self._claim:
            raise Overtaken(f"{claim[1]} has taken the job over in term {claim[0]}")

    def close(self) -> None:
        self._log.close()

    def _claim_job(self, term: int, instance: str) -> None:
        claim = _read_claim(self._ledger)
        if claim is not None and claim != (term, instance) and claim[0] >= term:
            raise Overtaken(
                f"{claim[1]} holds the job in term {claim[0]}, this node is nominated for term {term}: only "
                "the controller can change that"
            )
        write_whole(self._ledger / CLAIM_FILE, TermClaim(term=term, instance=instance).line())


def _read_claim(ledger: Path) -> tuple[int, str] | None:
    """Read the claim as (term, instance), or return None if there is no claim. Raises `records.Unreadable`."""
    path = ledger / CLAIM_FILE
    try:
        claim = _CLAIM_FORMAT.parse(json.loads(path.read_text()), path)
    except FileNotFoundError:
        return None
    return claim.term, claim.instance


def _valid_sizes(ledger: Path) -> dict[Path, int]:
    """Return the valid journals, oldest first, with the number of valid bytes in each journal.

    The latest journal that begins with `TermBegun` says how many bytes of each earlier journal are valid.
    """
    journals = sorted(
        (path for path in ledger.glob("journal*.jsonl") if path.name == JOURNAL or _JOURNAL_NAME.fullmatch(path.name)),
        key=_term_of,
    )
    while journals:
        latest_journal = journals.pop()
        first_entry = next(_read_entries(latest_journal), None)
        if _term_of(latest_journal) == 0:
            return {latest_journal: _complete_bytes(latest_journal)}
        if isinstance(first_entry, TermBegun):
            valid_sizes = {path: first_entry.of[path.name] for path in journals if path.name in first_entry.of}
            return {**valid_sizes, latest_journal: _complete_bytes(latest_journal)}
    return {}


def _journal_path(ledger: Path, term: int) -> Path:
    return ledger / (f"journal-{term:012d}.jsonl" if term else JOURNAL)


def _term_of(path: Path) -> int:
    match = _JOURNAL_NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _complete_bytes(path: Path) -> int:
    """The size of the file in bytes, without an incomplete last line."""
    return path.read_bytes().rfind(b"\n") + 1


def _read_all_entries(valid_sizes: dict[Path, int]) -> list[Entry]:
    return [entry for path, size in valid_sizes.items() for entry in _read_entries(path, size)]


def _read_entries(path: Path, size: int | None = None) -> Iterator[Entry]:
    return (FORMAT.parse(line, path) for line in read_lines(path, size))
