"""What is in the table outlives the version that wrote it: older items are read, newer ones are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dyntrain.controller.adapters.formats import FORMAT
from dyntrain.controller.adapters.items import (
    group_item,
    group_of,
    job_item,
    job_of,
    membership_item,
    membership_of,
    node_item,
    node_of,
    readable_records,
    trail_item,
    trail_of,
)
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.core.history.trail import (
    ActionDone,
    ActionRefused,
    AlarmRaised,
    CapacitySet,
    Entry,
    Metered,
    Nominated,
    PoolDecided,
    Rebuilt,
    StatusChanged,
    TargetPublished,
    entry_of,
)
from dyntrain.controller.core.records.acks import (
    Acks,
    Announcement,
    Doubt,
    Effect,
    LifecycleResult,
    MissedReads,
    Termination,
)
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import StoredMembership

NODE = "i-00000000000000001"
REPORT = JobReport(
    cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=0, revision=0, members=()
)
ITEMS = {
    "node": (node_item(NodeFacts(instance=NODE), 1, True, None), node_of),
    "group": (group_item(GroupFacts(group="g"), 1, False), group_of),
    "job": (job_item("demo", JobFacts(report=REPORT, heard_at=2.0), 1, False), job_of),
    "membership": (membership_item("demo", StoredMembership(Membership(revision=2), 2, 1), 2), membership_of),
    "audit": (trail_item("demo", 5.0, "a", [StatusChanged(instance=NODE, before="", after="GONE")], 9.0), trail_of),
}
FIRST_FORMAT = {
    "status": {"at": 1.0, "value": "ADDED TRAINING"},
    "mirror": {"at": 2.0, "value": "ADDED"},
    "terminate": {"at": 3.0},
    "refused": {"at": 4.0, "value": "at its minimum"},
    "unseen": {"at": 5.0, "value": "3"},
    "doubt": {"at": 6.0, "value": "lost"},
    "stamp:demo": {"at": 7.0},
    "complete:token:with:colons": {"at": 8.0, "value": "ABANDON"},
    "heartbeat:t": {"at": 9.0},
    "protect:demo-workers": {"at": 10.0},
    "alarm:Orphan": {"at": 11.0, "value": "REMOVED UNTAGGED"},
}


def test_acknowledgements_of_the_first_format_are_read_as_they_were_meant() -> None:
    """A controller that forgot them at its first run would terminate, tag and answer everything once more."""
    facts = {"instance": NODE, "terminated": True, "acks": FIRST_FORMAT}
    item = {
        "pk": {"S": f"node#{NODE}"},
        "facts": {"S": json.dumps(facts)},
        "version": {"N": "7"},
        "wake": {"BOOL": False},
    }
    read = node_of(item)
    assert (read.version, read.facts.terminated) == (7, True)
    assert read.facts.acks == Acks(
        status=Announcement(at=1.0, value="ADDED TRAINING"),
        mirror=Announcement(at=2.0, value="ADDED"),
        terminate=Termination(at=3.0),
        refused=Announcement(at=4.0, value="at its minimum"),
        unseen=MissedReads(at=5.0, times=3),
        doubt=Doubt(at=6.0, lost=True),
        stamps={"demo": Effect(at=7.0)},
        answers={"token:with:colons": LifecycleResult(at=8.0, result="ABANDON")},
        heartbeats={"t": Effect(at=9.0)},
        protections={"demo-workers": Effect(at=10.0)},
        alarms={"Orphan": Announcement(at=11.0, value="REMOVED UNTAGGED")},
    )
    written = node_item(read.facts, 8, False, None)
    assert node_of(written).facts == read.facts
    assert "complete:" not in written["facts"]["S"]


@pytest.mark.parametrize(
    ("status", "trained"), [("ADDED TRAINING", True), ("REMOVAL_QUEUED UNTAGGED", True), ("REMOVED UNTAGGED", False)]
)
def test_a_node_that_trained_before_that_was_written_down_is_still_ours_to_end(status: str, trained: bool) -> None:
    """Without it, one that came from no group or template of the cluster would run on, and bill, for ever."""
    acks = {"status": {"at": 1.0, "value": status}}
    facts = {"instance": NODE, "named": {"at": 0.0, "cluster": "demo"}, "acks": acks}
    item = {"pk": {"S": f"node#{NODE}"}, "facts": {"S": json.dumps(facts)}, "version": {"N": "1"}}
    assert node_of(item).facts.acks.joined == ({"demo": Effect(at=1.0)} if trained else {})


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_without_a_format_is_read_and_one_of_a_later_format_is_refused_by_name(kind: str) -> None:
    item, read = ITEMS[kind]
    first = {name: value for name, value in item.items() if name != "format"}
    assert read(first) == read(item)
    with pytest.raises(GiveUp, match=f"{item['pk']['S']} in the table has format {FORMAT + 1}.*up to {FORMAT}"):
        read({**item, "format": {"N": str(FORMAT + 1)}})


def test_a_stream_record_of_a_later_format_is_set_aside_and_the_others_of_its_batch_are_handled() -> None:
    item: dict[str, Any] = ITEMS["node"][0]
    newer = {"NewImage": {**item, "format": {"N": str(FORMAT + 1)}}}
    good, problems = readable_records([{"NewImage": item}, newer])
    assert good == [{"NewImage": item}]
    assert len(problems) == 1
    assert f"has format {FORMAT + 1}" in problems[0]


ENTRIES: list[Entry] = [
    StatusChanged(instance=NODE, before="", after="WAITING PREPARING", detail="x"),
    Nominated(coordinator="", term=1700000000, detail="nobody"),
    Rebuilt(revision=4, members=NODE),
    TargetPublished(revision=4, members=f"{NODE} {NODE}"),
    CapacitySet(group="g", value=3, why="LOWERED", detail="no capacity"),
    ActionDone(kind="SetStatusTag", instance=NODE, value="ADDED"),
    ActionDone(kind="StartInstances", instance=NODE, why="POOL"),
    ActionRefused(kind="SetDesiredCapacity", detail="above the maximum"),
    PoolDecided(why="KEPT", dry_run="no", current=0, held=0, spare=2, proposal=0, target=0, inputs="{}"),
    *(AlarmRaised(kind=metric, instance=NODE, detail="why") for metric in METRICS),
    Metered(instance=NODE, state="on", role="base", type="c5.large", market="spot", since=1_700_000_000.5),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind)
def test_each_entry_of_the_audit_trail_is_read_as_it_was_written(entry: Entry) -> None:
    assert entry_of(json.loads(json.dumps(entry.fields()))) == entry


def test_entries_of_the_first_format_are_still_told() -> None:
    """As they are in tables that this version is deployed over: the trail goes back for 30 days."""
    for fields in (
        {"kind": "status", "instance": NODE, "before": "", "after": "ADDED TRAINING", "detail": ""},
        {"kind": "Orphan", "instance": NODE, "detail": "it runs"},
        {"kind": "nomination", "coordinator": NODE, "term": "170", "detail": "first"},
        {"kind": "Terminate", "instance": NODE, "value": ""},
        {"kind": "SetDesiredCapacity", "why": "REFUSED", "detail": "no"},
    ):
        entry = entry_of(fields).fields()
        assert {name: value for name, value in fields.items() if value} == {n: v for n, v in entry.items() if v}


def test_an_entry_of_an_unknown_kind_is_no_silent_gap() -> None:
    with pytest.raises(ValueError, match="'Teleported'"):
        entry_of({"kind": "Teleported"})
