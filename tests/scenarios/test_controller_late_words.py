"""Of several words about one thing that word counts which is of the later life, however late an earlier one arrives.

Clocks of machines step back, networks hold reports up, and archives are replayed: so which word is the later is said by
its number first (attempt, version, start of the job), and by the clock only between words of one number; of attempts,
and between words that are an hour apart.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.incoming.events import observe
from dyntrain.controller.core.records.facts import NodeFacts, Preparation, StateRead, join_all
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.view import Rules, view
from fake_aws import START
from fakes import ELASTIC, World, instance_id, running_cluster
from hypothesis import given
from hypothesis import strategies as st

NODE = instance_id(1)
RULES = Rules(ClusterPolicy(cluster="demo"), ELASTIC)
OUTCOMES = st.sampled_from(["prepared", "prepare_failed", "worker_failed"])
WORDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), OUTCOMES), min_size=1, max_size=5, unique_by=lambda w: w[:2]
)


@given(WORDS, st.randoms(use_true_random=False))
def test_law_the_last_word_of_the_last_attempt_counts_in_whatever_order_they_come(words: list, random: Any) -> None:
    heard = list(words)
    random.shuffle(heard)
    facts = [
        NodeFacts(instance=NODE, preparation=Preparation(attempt=attempt, at=START + at, outcome=outcome))
        for attempt, at, outcome in heard
    ]
    known = view(join_all(NodeFacts(instance=NODE), facts), RULES, START + 10).preparation
    assert known is not None
    assert (known.attempt, known.at - START, known.outcome) == max(words, key=lambda word: word[:2])


@pytest.mark.parametrize("late", ["prepare_failed", "worker_failed"])
def test_a_late_failure_of_an_earlier_attempt_takes_nobody_out_of_the_job(late: str) -> None:
    """Its clock was ahead then, so it even says that it is the later one."""
    world, _, (worker,) = running_cluster(1)
    world.wait(5)
    world.hear(world.report(worker, attempt=2))
    world.hear(world.report(worker, late, attempt=1, at=world.now + 20, reason="of before"))
    world.resync()
    assert world.status(worker) == "ADDED"
    assert worker in world.target().members


def test_a_late_success_of_an_earlier_attempt_lets_nobody_in_who_has_failed_since() -> None:
    world, _, _ = running_cluster(0)
    node = world.launch(5)
    world.hear(world.tag(node), world.report(node, "prepare_failed", attempt=2, reason="no disk"))
    world.hear(world.report(node, attempt=1, at=world.now + 20))
    assert world.status(node) == "PREPARE_FAILED"
    assert node not in world.target().members


def test_tags_go_by_their_version_whatever_the_clock_says() -> None:
    world = World()
    key = ELASTIC.of("demo")
    without = observe(world.tag_event(NODE, 8, {"dyntrain:cluster": "demo"}, [key], at=START + 1), ELASTIC)
    with_it = observe(world.tag_event(NODE, 7, {"dyntrain:cluster": "demo", key: ""}, [key], at=START + 5), ELASTIC)
    assert isinstance(without, NodeFacts)
    assert isinstance(with_it, NodeFacts)
    for known in (without.join(with_it), with_it.join(without)):
        assert known.tags_event == without.tags_event
        assert not view(known, RULES, START + 9).elastic


REPORTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)),
    min_size=1,
    max_size=5,
    unique_by=lambda r: r[:2],
)


@given(REPORTS, st.randoms(use_true_random=False))
def test_law_the_job_that_began_last_counts_and_of_its_reports_the_last(reports: list, random: Any) -> None:
    """An older coordinator that is still heard would let go, or take back, whom the new one trains with."""
    world, heard = World(), list(reports)
    random.shuffle(heard)
    known: JobFacts | None = None
    for started, sequence, at in heard:
        event = world.job_event(NODE, started_at=START + started, sequence=sequence)
        facts = observe(event, ELASTIC)
        assert isinstance(facts, JobFacts)
        facts = facts.model_copy(update={"heard_at": START + at})
        known = facts if known is None else known.join(facts)
    assert known is not None
    last = max(reports, key=lambda report: report[:2])
    assert (known.report.started_at - START, known.report.sequence, known.heard_at - START) == last


@pytest.mark.parametrize("started", [0.0, 40.0], ids=["no event of the start", "an event of the start"])
@pytest.mark.parametrize("read", [None, 40.0], ids=["no read of the start", "a read of the start"])
@pytest.mark.parametrize(("prepared", "counts"), [(39.0, False), (40.0, True), (41.0, True)])
def test_a_word_from_before_the_machines_start_is_about_an_earlier_life(
    started: float, read: float | None, prepared: float, counts: bool
) -> None:
    state = StateRead(started=START + 50, state="running", launched_at=START + read) if read is not None else None
    facts = NodeFacts(
        instance=NODE,
        started_at=START + started if started else 0.0,
        state_read=state,
        preparation=Preparation(attempt=1, at=START + prepared, outcome="prepared"),
    )
    known = view(facts, RULES, START + 60).preparation
    assert (known is not None) == (counts or (not started and read is None))


def test_of_two_starts_the_later_one_is_the_beginning_of_this_life() -> None:
    for started, read in permutations((30.0, 40.0)):
        facts = NodeFacts(
            instance=NODE,
            started_at=START + started,
            state_read=StateRead(started=START + 50, state="running", launched_at=START + read),
            preparation=Preparation(attempt=1, at=START + 35, outcome="prepared"),
        )
        assert view(facts, RULES, START + 60).preparation is None
