"""What a page shows, worked out from readings: pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from dyntrain.controller.cli.answers.log_sources import SourceLine
from dyntrain.controller.cli.answers.query import snapshot, summary
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.history.trail import Entry, PoolDecided, StatusChanged
from dyntrain.controller.dashboard.curves import MAX_POINTS, Curves
from dyntrain.controller.dashboard.happenings import MAX_EVENTS, OVERLAP_SECONDS, Happenings
from dyntrain.controller.dashboard.readings import MAX_LOG_LINES, MAX_OPEN_LOGS, LogTails
from dyntrain.controller.dashboard.state import changes, cluster_state
from dyntrain.controller.loops.ports import TrailEntry
from fakes import ELASTIC, running_cluster
from hypothesis import given
from hypothesis import strategies as st

ROW = st.fixed_dictionaries({"status": st.sampled_from(["WAITING", "ADDED"]), "rank": st.none() | st.integers(0, 3)})
NODES = st.dictionaries(st.sampled_from(["i-1", "i-2", "i-3", "i-4"]), ROW)
STATE = st.fixed_dictionaries(
    {"problem": st.sampled_from(["", "no"]), "job": st.none() | st.just({"epoch": 1}), "nodes": NODES}
)


def applied(shown: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """As the page does it."""
    parts = {name: value for name, value in update.items() if name not in ("nodes", "whole")}
    nodes = {} if update.get("whole") else dict(shown["nodes"])
    rows = update.get("nodes", {"set": {}, "gone": []})
    nodes.update(rows["set"])
    for instance in rows["gone"]:
        del nodes[instance]
    return {**shown, **parts, "nodes": nodes}


@given(STATE, STATE)
def test_changes_lead_from_any_state_to_any_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, changes(before, after)) == after
    assert applied({"nodes": {"i-9": {}}}, changes(None, after)) == after


@given(STATE)
def test_nothing_is_sent_of_what_stayed_as_it_was(state: dict[str, Any]) -> None:
    assert changes(state, json.loads(json.dumps(state))) == {}


def test_the_passing_of_time_alone_changes_nothing() -> None:
    world, *_ = running_cluster(1)
    states = []
    for _ in range(2):
        world.wait(10_000.0)
        states.append(cluster_state(summary(snapshot(world.ports, world.registry, "demo", ELASTIC))))
    assert "silent since" in states[0]["told"][0]
    assert states[0] == states[1]


class Written:
    """A log that counts how often it is opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, str]] = []

    def __call__(self, *request: str) -> Written:
        self.opened.append(request)  # type: ignore[arg-type]
        return self

    def next(self) -> Iterator[SourceLine]:
        return iter([SourceLine("i-1 worker", f"read {len(self.opened)}")])


def test_a_log_that_is_looked_at_is_opened_once_and_only_the_last_ones_are_kept() -> None:
    log = Written()
    tails = LogTails(log)
    for _ in range(MAX_LOG_LINES):
        shown = tails.lines("demo", "i-1", "worker")
    assert (len(log.opened), len(shown["lines"])) == (1, MAX_LOG_LINES)
    assert len(tails.lines("demo", "i-1", "worker")["lines"]) == MAX_LOG_LINES
    for number in range(MAX_OPEN_LOGS):
        tails.lines("demo", f"i-{number + 2}", "worker")
    tails.lines("demo", "i-1", "worker")
    assert log.opened.count(("demo", "i-1", "worker")) == 2


def test_a_log_that_cannot_be_read_is_a_sentence() -> None:
    def refused(*_request: str) -> Written:
        raise GiveUp("you may not do logs:FilterLogEvents")

    assert LogTails(refused).lines("demo", "i-1", "worker") == {
        "problem": "you may not do logs:FilterLogEvents",
        "lines": [],
    }


def entry(at: float, instance: str = "i-1", detail: str = "") -> TrailEntry:
    return TrailEntry(
        at, StatusChanged(instance=instance, before="WAITING PREPARING", after="ADDED TRAINING", detail=detail)
    )


def test_what_is_read_twice_is_listed_once_and_late_writers_are_listed_too() -> None:
    first = Happenings().with_new([entry(100.0), entry(101.0, "i-2")])
    late = entry(101.0 - OVERLAP_SECONDS / 2, "i-3")
    again = first.with_new([late, entry(100.0), entry(101.0, "i-2"), entry(102.0, "i-4")])
    assert [row["instance"] for row in again.page("", None, 10)["rows"]] == ["i-4", "i-3", "i-2", "i-1"]
    assert again.with_new([entry(102.0, "i-4")]) is again
    assert again.since(0.0) == 102.0 - OVERLAP_SECONDS


def test_events_are_paged_newest_first_and_found_by_all_their_words() -> None:
    known = Happenings().with_new(entry(float(at), f"i-{at % 7}", f"e{at}") for at in range(500))
    page = known.page("i-3 added", None, 20)
    assert page["more"]
    older = known.page("i-3 added", page["rows"][-1]["number"], 100)
    assert not older["more"]
    details = [row["detail"] for row in page["rows"] + older["rows"]]
    assert details == [f"e{at}" for at in reversed(range(500)) if at % 7 == 3]
    assert known.page("nonsense", None, 20)["rows"] == []


def test_the_list_of_events_does_not_grow_without_end() -> None:
    known = Happenings().with_new(entry(float(at)) for at in range(MAX_EVENTS + 10))
    assert known.page("", None, 1)["known"] == MAX_EVENTS
    assert known.latest == MAX_EVENTS + 10


def test_the_inputs_of_a_pools_decision_are_too_long_for_a_line() -> None:
    looked: Entry = PoolDecided(
        why="IDLE", dry_run="no", current=1, held=1, spare=2, proposal=3, target=3, inputs="x" * 9000
    )
    row = Happenings().with_new([TrailEntry(1.0, looked)]).page("", None, 1)["rows"][0]
    assert "target=3" in row["what"]
    assert len(row["what"]) < 200


def job(at: float, workers: int = 2, **more: Any) -> dict[str, Any]:
    return {"job": "job-1", "heard_at": at, "workers": workers, "samples_per_second": 10.0, **more}


def test_a_loss_that_diverged_is_a_gap_and_not_the_end_of_the_page() -> None:
    curves = (
        Curves()
        .with_job(job(1.0, progress={"metrics": {"loss": 0.5}}))
        .with_job(job(2.0, progress={"metrics": {"loss": math.nan}}))
    )
    columns = curves.columns()
    assert columns["metrics"] == {"loss": [0.5, None]}
    json.dumps(columns, allow_nan=False)


def test_a_word_heard_twice_is_one_point_and_another_job_begins_anew() -> None:
    curves = Curves().with_job(job(1.0)).with_job(job(1.0)).with_job(None)
    assert curves.columns()["at"] == [1.0]
    assert curves.with_job({**job(9.0), "job": "job-2"}).columns()["at"] == [9.0]


def test_a_long_job_keeps_a_bounded_curve_and_the_moments_of_its_changes() -> None:
    curves = Curves()
    for second in range(10_000):
        curves = curves.with_job(job(float(second), workers=3 if second >= 1001 else 2))
    columns = curves.columns()
    assert len(columns["at"]) <= MAX_POINTS
    assert columns["at"][columns["workers"].index(3)] == 1001.0
    assert columns["at"][-1] == 9999.0


def test_what_the_job_reports_of_its_past_comes_before_what_was_watched() -> None:
    past = [{"at": float(at), "workers": 1, "samples_per_second": 5.0, "metrics": {"loss": 2.0}} for at in (1, 2)]
    columns = Curves().with_job(job(1.5)).with_job(job(3.0)).columns(past)
    assert columns["at"] == [1.0, 2.0, 3.0]
    assert columns["workers"] == [1, 1, 2]
    assert columns["metrics"] == {"loss": [2.0, 2.0, None]}
