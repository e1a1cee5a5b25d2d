"""When a base node is given up for its successor, and a coordinator for the next: never for one that cannot serve.

The job's parameter servers are on its base nodes, so who is given up too early takes a part of the state along.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.messages import BASE_TAG, NODE_TYPE_TAG, OWNER_TAG, ClusterPolicy
from dyntrain.controller.contract.reports import JobMember, JobReport
from dyntrain.controller.core.decisions.replacement import planned_replacements
from dyntrain.controller.core.decisions.succession import NominationReason, nominate
from dyntrain.controller.core.records.facts import NodeFacts, Notice, Preparation, StateEvent, TagsEvent
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View, view
from fake_aws import START
from fakes import ELASTIC, instance_id, running_cluster

NOW = START + 1000.0
MASTER, OLD, OTHER, NEW, NEWER = (instance_id(number) for number in range(5))


def rules(**policy: Any) -> Rules:
    return Rules(ClusterPolicy(**{"cluster": "demo", **policy}), ELASTIC)


def base(instance: str, value: str = "true", *, prepared: Any = "prepared", **facts: Any) -> View:
    tags = {OWNER_TAG: "demo", BASE_TAG: value} | ({NODE_TYPE_TAG: "Master"} if instance == MASTER else {})
    preparation = Preparation(attempt=1, at=START + 10, outcome=prepared) if prepared else None
    known = {"tags_event": TagsEvent(version=1, at=START, tags=tags), "preparation": preparation, **facts}
    return view(NodeFacts(instance=instance, **known), rules(), NOW)


def heard(*members: str, at: float = 1000.0, state: Any = "running") -> JobFacts:
    train = tuple(
        JobMember(instance_id=one, rank=rank, active=True, joined_epoch=0, joined_at=START)
        for rank, one in enumerate(members)
    )
    fields: dict[str, Any] = {"started_at": START, "sequence": 1, "generation": 1, "revision": 1}
    report = JobReport(cluster="demo", job="j", state=state, members=train, **fields)
    return JobFacts(report=report, heard_at=START + at)


def members(*instances: str, **more: Any) -> Membership:
    return Membership(revision=5, members=instances, coordinator=MASTER, term=1, **more)


UNABLE: dict[str, dict[str, Any]] = {
    "is not prepared": {"prepared": None},
    "failed to prepare": {"prepared": "prepare_failed"},
    "has a worker that fails": {"prepared": "worker_failed"},
    "is taken back": {"notices": (Notice(kind="spot", deadline=NOW + 60),)},
    "is being stopped": {"state_event": StateEvent(at=NOW - 50, state="stopping")},
    "is gone": {"terminated": True},
}


@pytest.mark.parametrize("part", ["trains", "is a member", "both"])
@pytest.mark.parametrize("state", UNABLE.values(), ids=UNABLE)
def test_who_has_a_part_in_the_job_is_not_given_up_for_one_that_cannot_serve(state: dict[str, Any], part: str) -> None:
    old = members(MASTER, *([OLD] if part != "trains" else []))
    job = heard(MASTER, *([OLD] if part != "is a member" else []))
    nodes = [base(MASTER), base(OLD)]
    assert planned_replacements([*nodes, base(NEW, OLD, **state)], old, job, rules()) == {}
    assert planned_replacements([*nodes, base(NEW, OLD)], old, job, rules()) == {OLD: NEW}


@pytest.mark.parametrize("state", UNABLE.values(), ids=UNABLE)
def test_who_has_no_part_in_the_job_any_more_stays_given_up_whatever_becomes_of_the_successor(
    state: dict[str, Any],
) -> None:
    nodes = [base(MASTER), base(OLD), base(NEW, OLD, **state)]
    assert planned_replacements(nodes, members(MASTER, NEW), heard(MASTER), rules()) == {OLD: NEW}
    assert planned_replacements(nodes, members(MASTER, NEW), None, rules()) == {OLD: NEW}


def test_of_two_that_would_replace_one_node_the_first_by_name_does_however_they_are_listed() -> None:
    nodes = [base(NEWER, OLD), base(OLD), base(MASTER), base(NEW, OLD)]
    for views in (nodes, nodes[::-1]):
        assert planned_replacements(views, members(MASTER, OLD), heard(MASTER, OLD), rules()) == {OLD: NEW}


@pytest.mark.parametrize(("least", "given_up"), [(3, [OLD, OTHER]), (4, [OLD]), (5, [])])
def test_so_many_are_given_up_at_once_as_leaves_the_minimum(least: int, given_up: list[str]) -> None:
    """Five are prepared, two of which are to be replaced."""
    nodes = [base(MASTER), base(OLD), base(OTHER), base(NEW, OLD), base(NEWER, OTHER)]
    instances = planned_replacements(
        nodes, members(MASTER, OLD, OTHER), heard(MASTER, OLD, OTHER), rules(min_workers=least)
    )
    assert sorted(instances) == given_up


def test_the_coordinators_node_is_not_given_up_and_before_any_nomination_the_masters_is_not() -> None:
    nodes = [base(MASTER), base(OLD), base(NEW, MASTER), base(NEWER, OLD)]
    job = heard(MASTER, OLD)
    assert planned_replacements(nodes, members(MASTER, OLD), job, rules()) == {OLD: NEWER}
    moved = members(MASTER, OLD).model_copy(update={"coordinator": OLD})
    assert planned_replacements(nodes, moved, job, rules()) == {MASTER: NEW}
    assert planned_replacements(nodes, Membership(revision=5, members=(MASTER, OLD)), job, rules()) == {OLD: NEWER}


@pytest.mark.parametrize(("silent", "moves"), [(119.0, False), (120.0, False), (121.0, True)])
@pytest.mark.parametrize("since", ["report", "nomination"])
def test_a_silent_coordinator_has_its_patience_to_the_second_and_a_new_one_from_its_nomination_on(
    since: str, silent: float, moves: bool
) -> None:
    old = members(MASTER, OLD).model_copy(update={"term": int(START) + (500 if since == "nomination" else 1)})
    job = heard(MASTER, OLD, at=500.0 if since == "report" else 1.0)
    nomination = nominate(old, [base(MASTER), base(OLD)], job, rules(takeover_seconds=120.0), START + 500.0 + silent)
    assert (nomination.coordinator, nomination.reason) == (
        (OLD, NominationReason.SILENT) if moves else (MASTER, NominationReason.STANDS)
    )
    assert (nomination.term > old.term) == moves


@pytest.mark.parametrize("state", UNABLE.values(), ids=UNABLE)
def test_nobody_is_nominated_who_is_not_prepared_or_is_going(state: dict[str, Any]) -> None:
    """What is merely told to be taken back may lead until then."""
    nomination = nominate(
        members(MASTER, OLD), [base(MASTER), base(OLD, **state)], heard(MASTER, OLD, at=1.0), rules(), NOW + 500
    )
    assert (nomination.coordinator == OLD) == ("notices" in state)


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_a_job_that_is_over_is_silent_for_good_and_nobody_else_is_nominated_for_it(state: str) -> None:
    job = heard(at=1.0, state=state)
    nomination = nominate(members(MASTER, OLD), [base(MASTER), base(OLD)], job, rules(), NOW + 500)
    assert (nomination.coordinator, nomination.reason) == (MASTER, NominationReason.STANDS)


def test_the_next_in_turn_is_nominated_and_after_the_last_the_first_that_is_able() -> None:
    nodes = [base(MASTER), base(OLD), base(OTHER)]
    silent = heard(MASTER, OLD, OTHER, at=1.0)
    turns = {MASTER: OLD, OLD: OTHER, OTHER: MASTER}
    for now_leads, follows in turns.items():
        old = members(MASTER, OLD, OTHER).model_copy(update={"coordinator": now_leads})
        assert nominate(old, nodes, silent, rules(), NOW + 500).coordinator == follows


@pytest.mark.parametrize(("term", "now"), [(7, 3.5), (7, 7.9), (7, 8.0), (7, 500.2)])
def test_a_new_term_is_the_time_and_above_the_last_also_where_the_clock_stepped_back(term: int, now: float) -> None:
    old = members(MASTER, OLD).model_copy(update={"term": term, "coordinator": OTHER})
    nomination = nominate(old, [base(MASTER), base(OLD)], None, rules(), now)
    assert nomination.term == max(term + 1, int(now))


def test_a_nomination_is_told_once_and_not_by_each_pass() -> None:
    world, _, _ = running_cluster(1)
    nominations = [entry for entry in world.trail if entry["kind"] == "nomination"]
    for _ in range(3):
        world.wait(60)
        world.resync()
    assert [entry for entry in world.trail if entry["kind"] == "nomination"] == nominations
    assert len(nominations) == 1
