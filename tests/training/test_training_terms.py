"""T21, the volume's part: of two coordinators that both believe in their nomination, one counts, and the journal says
which.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from dyntrain.training.audit import audit_directory
from dyntrain.training.coordinator.terms import CLAIM_FILE, Overtaken, TermJournal, read_journal
from dyntrain.training.journal import Entry, GenerationSettled, JobBegun, JobFinished
from dyntrain.training.ledger import IntentLog, LineLog
from dyntrain.training.protocol.messages import Position
from hypothesis import given, settings
from hypothesis import strategies as st

A, B, C = "i-0000000000000000a", "i-0000000000000000b", "i-0000000000000000c"


END = JobFinished(position=Position(epoch=1, offset=0, step=1), at=0.0)


def generation(number: int, step: int = 0) -> GenerationSettled:
    return GenerationSettled(
        number=number,
        members=(A,),
        position=Position(epoch=0, offset=0, step=step),
        at=0.0,
        pids={A: 1},
        holders=(),
        hosts={},
    )


def decisions(entries: list[Entry]) -> list[int]:
    return [entry.number for entry in entries if isinstance(entry, GenerationSettled)]


def test_t21_what_an_overtaken_coordinator_still_writes_is_void_and_it_is_told(tmp_path: Path) -> None:
    first = TermJournal(tmp_path, A, 0)
    first.append(generation(1))
    second = TermJournal(tmp_path, B, 5)
    assert (second.taken_over, decisions(second.entries)) == (A, [1])
    with pytest.raises(Overtaken, match=f"{B} has taken the job over in term 5"):
        first.append(generation(2))
    second.append(generation(2, step=7))
    kept = [entry for entry in read_journal(tmp_path) if isinstance(entry, GenerationSettled)]
    assert [settled.position.step for settled in kept] == [0, 7]


def test_t21_a_coordinator_that_comes_back_in_its_term_goes_on_and_is_no_successor(tmp_path: Path) -> None:
    TermJournal(tmp_path, A, 0).append(generation(1))
    again = TermJournal(tmp_path, A, 0)
    assert (again.taken_over, decisions(again.entries)) == (None, [1])
    named = TermJournal(tmp_path, A, 3)  # the controller has named it meanwhile
    named.append(generation(2))
    assert (named.taken_over, decisions(TermJournal(tmp_path, A, 3).entries)) == (None, [1, 2])


def test_t21_an_earlier_nomination_is_refused_with_who_holds_the_job(tmp_path: Path) -> None:
    TermJournal(tmp_path, A, 4)
    for instance, term in ((B, 3), (B, 4), (A, 3)):
        with pytest.raises(Overtaken, match=f"{A} holds the job in term 4"):
            TermJournal(tmp_path, instance, term)
    assert TermJournal(tmp_path, B, 5).taken_over == A


def test_t21_a_successor_that_died_before_its_first_line_took_nothing_over(tmp_path: Path) -> None:
    """It has the claim and perhaps an empty or torn journal: nothing of the one before it may be lost."""
    TermJournal(tmp_path, A, 0).append(generation(1))
    (tmp_path / CLAIM_FILE).write_text(f'{{"term": 5, "instance": "{B}"}}')
    (tmp_path / "journal-000000000005.jsonl").write_bytes(b'{"kind": "term", "te')
    assert decisions(read_journal(tmp_path)) == [1]
    third = TermJournal(tmp_path, C, 6)
    assert (third.taken_over, decisions(third.entries)) == (A, [1])


def test_t21_the_audit_reads_all_terms(tmp_path: Path) -> None:
    first = TermJournal(tmp_path, A, 0)
    first.append(JobBegun(job="j", samples=2, global_batch=2, seed=0, batching="fixed-global", at=0.0))
    first.append(generation(1))
    start = Position(epoch=0, offset=0, step=0)
    IntentLog(tmp_path, A, 1).append_intent(1, start, [0, 1])
    second = TermJournal(tmp_path, B, 5)
    with pytest.raises(Overtaken):
        first.append(END)
    second.append(generation(2))
    IntentLog(tmp_path, B, 1).append_intent(2, start, [0, 1])
    second.append(END)
    result = audit_directory(tmp_path)
    assert (result.exact, result.void_intents) == (True, 1)


def test_without_terms_any_host_goes_on_with_the_job(tmp_path: Path) -> None:
    """`launch` may be started again from another host: there is no controller that could name it."""
    TermJournal(tmp_path, A, None).append(generation(1))
    again = TermJournal(tmp_path, B, None)
    again.append(generation(2))
    assert (again.taken_over, decisions(read_journal(tmp_path))) == (None, [1, 2])
    assert not (tmp_path / CLAIM_FILE).exists()


class Coordinators:
    """Three coordinators on one volume, each at most one at a time, interleaved as a test draws them."""

    def __init__(self, ledger: Path) -> None:
        self.ledger, self.term, self.number = ledger, 0, 0
        self.open: dict[str, TermJournal] = {}
        self.terms: dict[str, int] = {}
        self.announced: list[int] = []  # decisions that a coordinator made known, which must never be forgotten

    def start(self, instance: str, nominated: bool) -> None:
        if nominated:
            self.term += 1
            self.terms[instance] = self.term
        try:
            self.open[instance] = TermJournal(self.ledger, instance, self.terms.get(instance, 0))
        except Overtaken:
            self.open.pop(instance, None)

    def decide(self, instance: str) -> None:
        if instance in self.open:
            self.number += 1
            try:
                self.open[instance].append(generation(self.number))
                self.announced.append(self.number)
            except Overtaken:
                del self.open[instance]

    def write_without_look(self, instance: str) -> None:
        """It is stopped between its line and the look at the claim: nobody was told."""
        if instance in self.open:
            self.number += 1
            LineLog(
                sorted(self.ledger.glob("journal*"))[0] if not self.terms.get(instance) else self._file(instance)
            ).write(generation(self.number).line())

    def _file(self, instance: str) -> Path:
        return self.ledger / f"journal-{self.terms[instance]:012d}.jsonl"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.sampled_from(["start", "nominate", "decide", "decide", "torn"])),
        max_size=25,
    )
)
def test_t21_law_no_decision_that_was_told_is_lost_and_only_the_holder_adds(steps: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        job = Coordinators(Path(folder))
        for instance, step in steps:
            if step in ("start", "nominate"):
                job.start(instance, step == "nominate")
            elif step == "decide":
                job.decide(instance)
            else:
                job.write_without_look(instance)
            known = decisions(read_journal(job.ledger))
            assert [number for number in known if number in job.announced] == job.announced, "in order, none lost"
            assert known == sorted(set(known))
