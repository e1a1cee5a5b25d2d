"""The parts of the fault hunt: its plan, its people, whom it hits, and its verdict. A hunt that cannot say no finds
nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.chaos import census
from dyntrain.controller.local.chaos.last_words import TAIL_LINES, last_log_lines
from dyntrain.controller.local.chaos.people import SimulatedUsers, UserRequests
from dyntrain.controller.local.chaos.plan import (
    ChangeKind,
    ClusterChange,
    LinkCut,
    LinkSlowdown,
    ProcessFreeze,
    ProcessKill,
    ServiceThrottle,
    Victim,
    VolumeStall,
    plan_changes,
    plan_faults,
    stretch_plan,
)
from dyntrain.controller.local.chaos.standstill import Standstill, standstill_causes, standstill_report
from dyntrain.controller.local.chaos.verdict import (
    ClusterState,
    Verdict,
    build_hunt_report,
    judge_state,
    last_cool_down_end,
    report_problems,
)
from dyntrain.controller.local.stack import Cluster
from dyntrain.training import events
from dyntrain.training.events import CoolingDown, Readmitted
from waiting import wait_for

MASTER, ONE, TWO = "i-00000001", "i-00000002", "i-00000003"


def test_the_plan_is_a_function_of_the_seed() -> None:
    assert plan_faults(3, 600) == plan_faults(3, 600)
    assert plan_changes(3, 600, 2) == plan_changes(3, 600, 2)
    assert plan_faults(3, 600) != plan_faults(4, 600)
    assert plan_changes(3, 600, 2) != plan_changes(4, 600, 2)


def test_a_plan_hits_every_kind_of_process_and_service_in_order_of_time() -> None:
    planned = plan_faults(1, 3600)
    assert [fault.at for fault in planned] == sorted(fault.at for fault in planned)
    assert planned[-1].at < 3600
    assert {fault.victim for fault in planned if isinstance(fault, ProcessKill)} == set(Victim)
    assert {fault.victim for fault in planned if isinstance(fault, ProcessFreeze)} == set(Victim) - {Victim.MACHINE}
    assert {fault.service for fault in planned if isinstance(fault, ServiceThrottle)} == {
        "ec2",
        "autoscaling",
        "ssm",
        "dynamodb",
        "events",
    }
    assert {change.kind for change in plan_changes(1, 600, 2)} == set(ChangeKind)


def test_links_and_the_volume_fail_only_where_there_are_some_and_change_no_other_fault() -> None:
    without, everything = plan_faults(1, 600), plan_faults(1, 600, links=True, volume=True)
    assert (
        tuple(fault for fault in everything if not isinstance(fault, LinkCut | LinkSlowdown | VolumeStall)) == without
    )
    assert sum(isinstance(fault, LinkCut) for fault in everything) > 10
    assert sum(isinstance(fault, LinkSlowdown) for fault in everything) > 5
    assert {1 <= fault.seconds <= 120 for fault in everything if isinstance(fault, VolumeStall)} == {True}
    assert [fault.at for fault in everything] == sorted(fault.at for fault in everything)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["python", "-m", "dyntrain.node_bootstrap", "run"], Victim.BOOTSTRAP),
        (["python", "-m", "dyntrain.training.coordinator", "--cluster", "c"], Victim.COORDINATOR),
        (["python", "-m", "dyntrain.training.engine.blank"], Victim.PSLITE),
        (["python", "-m", "dyntrain.training.examples.digits"], Victim.WORKER),
        (["python", "-m", "dyntrain.controller.local.lambdas.runtime", "app:app"], Victim.HANDLER),
        (
            [
                "python",
                "-m",
                "dyntrain.controller.local.machines.init_process",
                "--command",
                '["python", "-m", "dyntrain.node_bootstrap"]',
            ],
            Victim.MACHINE,
        ),
        (
            ["python", "training/host/exec_child.py", "1", "0", "python", "-m", "dyntrain.training.coordinator"],
            None,
        ),
        (["sh"], None),
    ],
)
def test_processes_are_known_by_their_command_lines(words: list[str], kind: Victim | None) -> None:
    assert census.victim_kind_of(words) is kind


def test_nobody_outside_the_cloud_is_hit() -> None:
    """Processes of a cloud are those below it: another that looks the same, of another cloud on this host, is not."""
    node = [sys.executable, "-c", "input()", "dyntrain.node_bootstrap"]
    cloud = [sys.executable, "-c", f"import subprocess; subprocess.run({node})"]
    with (
        subprocess.Popen(node, stdin=subprocess.PIPE) as other,
        subprocess.Popen(cloud, stdin=subprocess.PIPE) as root,
    ):
        hit = wait_for(lambda: census.victim_processes(root.pid)[Victim.BOOTSTRAP])
        assert len(hit) == 1
        assert other.pid not in hit
        assert census.victim_processes(other.pid) == {kind: [] for kind in Victim}


class Api:
    """Stands for the EC2 and the Auto Scaling client: notes what people ask for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run_instances(self, **_: Any) -> Any:
        self.calls.append("run")
        return {"Instances": [{"InstanceId": f"i-{len(self.calls):08x}"}]}

    def delete_tags(self, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        self.calls.append(f"untag {Resources[0]} {Tags[0]['Key']}")

    def create_tags(self, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        self.calls.append(f"tag {Resources[0]} {Tags[0]['Key']}")

    def set_desired_capacity(self, AutoScalingGroupName: str, DesiredCapacity: int) -> None:  # noqa: N803
        self.calls.append(f"{AutoScalingGroupName} {DesiredCapacity}")


def people_of(api: Api, planned: list[ClusterChange]) -> SimulatedUsers:
    cluster = Cluster("c", "template", "group", MASTER, ())
    people = SimulatedUsers(api, api, cluster, lambda _: True, lambda _: None)
    people.start(planned)
    people.finish_due_changes()
    return people


def test_people_remember_what_they_last_asked_for() -> None:
    api = Api()
    planned = [
        ClusterChange(0, ChangeKind.LAUNCH, 0, 0),
        ClusterChange(0, ChangeKind.UNTAG, 0.5, 0),
        ClusterChange(0, ChangeKind.RETAG, 0.5, 0),
        ClusterChange(0, ChangeKind.CAPACITY, 0, 2),
    ]
    people = people_of(api, planned)
    assert people.requests == UserRequests({"i-00000001": True}, {"i-00000001"}, 2)
    assert api.calls == [
        "run",
        "untag i-00000001 c-aws-dl-cfn-elastic-worker",
        "tag i-00000001 c-aws-dl-cfn-elastic-worker",
        "group 2",
    ]
    assert people.change_count == 4
    people.remove_elastic_nodes()
    assert people.requests == UserRequests({"i-00000001": False}, {"i-00000001"}, 0)


def test_what_fits_nothing_is_no_change() -> None:
    api = Api()
    people = people_of(
        api,
        [
            ClusterChange(0, ChangeKind.UNTAG, 0.5, 0),
            ClusterChange(0, ChangeKind.RETAG, 0.5, 0),
            *[ClusterChange(0, ChangeKind.LAUNCH, 0, 0)] * 5,
        ],
    )
    assert (people.change_count, api.calls) == (3, ["run"] * 3), "no more than three by hand"


TRAINS = ("ADDED", "TRAINING")
WISHED = ClusterState(
    states={MASTER: "running", ONE: "running", TWO: "running"},
    tags={ONE: "ADDED", TWO: "ADDED"},
    base=frozenset({MASTER}),
    grouped={TWO: "InService"},
    capacity=1,
    nodes={MASTER: TRAINS, ONE: TRAINS, TWO: TRAINS},
    job="running",
)
WISHES = UserRequests({ONE: True}, set(), 1)


def test_what_is_as_wished_is_clean() -> None:
    assert judge_state(WISHED, WISHES) == Verdict()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"job": ""}, "silent"),
        ({"capacity": 0}, "desired capacity"),
        ({"grouped": {}}, "has 0 instances"),
        ({"grouped": {TWO: "Pending:Wait"}}, "Pending:Wait"),
        ({"states": {**WISHED.states, ONE: "terminated"}}, f"{ONE} is wanted, but it is terminated"),
        ({"nodes": {**WISHED.nodes, ONE: ("ADD_QUEUED", "NO_JOB")}}, "ADD_QUEUED NO_JOB"),
        ({"nodes": {ONE: TRAINS, TWO: TRAINS}}, f"{MASTER} is wanted, but its status is unknown"),
        ({"tags": {ONE: "ADD_QUEUED", TWO: "ADDED"}}, "its tag says ADD_QUEUED"),
        ({"states": {**WISHED.states, "i-00000009": "running"}}, "i-00000009 is not wanted, but it is running"),
        (
            {
                "states": {**WISHED.states, "i-00000009": "terminated"},
                "tags": {**WISHED.tags, "i-00000009": "REMOVAL_QUEUED"},
            },
            "REMOVAL_QUEUED",
        ),
    ],
)
def test_what_is_not_as_wished_is_named(change: dict[str, Any], word: str) -> None:
    verdict = judge_state(replace(WISHED, **change), WISHES)
    assert any(word in line for line in verdict.stuck), verdict


def test_an_instance_tagged_again_may_have_been_too_late() -> None:
    gone = replace(WISHED, states={**WISHED.states, ONE: "terminated"}, tags={ONE: "REMOVED", TWO: "ADDED"})
    assert judge_state(gone, UserRequests({ONE: True}, {ONE}, 1)).is_clean


def test_the_hunt_waits_for_cool_downs_that_the_faults_brought() -> None:
    """A node killed too often is tried again later than the patience with everything else; one that is back delays
    nothing.
    """
    begun = [
        CoolingDown(instance=ONE, at=100.0, seconds=60.0, reason="it failed"),
        CoolingDown(instance=TWO, at=110.0, seconds=240.0, reason="it failed"),
        Readmitted(instance=ONE, at=161.0),
        CoolingDown(instance=ONE, at=170.0, seconds=120.0, reason="it failed"),
    ]
    assert last_cool_down_end(begun) == 350.0
    assert last_cool_down_end([*begun, Readmitted(instance=TWO, at=200.0)]) == 290.0
    assert last_cool_down_end(begun[:1] + begun[2:3]) == 0.0


@pytest.mark.parametrize(
    ("job", "strays", "word"),
    [
        ({"samples_lost": 1}, [], "1 samples lost"),
        ({"samples_doubled": 2}, [], "2 doubled"),
        ({"samples_lost": None, "samples_doubled": None}, [], "no ledger"),
        ({"final_accuracy": 0.5}, [], "accuracy"),
        ({"final_accuracy": None}, [], "accuracy"),
        ({}, ["123 python"], "123 python"),
    ],
)
def test_a_hunt_is_clean_only_without_losses_strays_and_a_poor_model(
    job: dict[str, Any], strays: list[str], word: str
) -> None:
    fine = {"samples_lost": 0, "samples_doubled": 0, "final_accuracy": 0.95, "longest_stall_seconds": 4.0}
    assert report_problems(build_hunt_report(1, 60.0, {"worker killed": 2}, 3, Verdict(), [], fine)) == []
    lines = report_problems(build_hunt_report(1, 60.0, {"worker killed": 2}, 3, Verdict(), strays, fine | job))
    assert any(word in line for line in lines), lines


def test_on_a_host_that_is_busy_with_other_things_faults_come_rarer_and_not_beyond_the_hunt() -> None:
    """Else a hunt there finds that its host is slow: workers are killed before they have come to their first step."""
    planned = plan_faults(3, 600)
    assert stretch_plan(planned, 1.0, 600) == planned
    slow = stretch_plan(planned, 5.0, 600)
    assert [fault.at for fault in slow] == [fault.at * 5 for fault in planned if fault.at < 120]
    assert [replace(fault, at=0.0) for fault in slow] == [replace(fault, at=0.0) for fault in planned[: len(slow)]]


def test_a_stall_is_told_by_what_was_waited_for() -> None:
    instance, pid = ONE, 7
    heard = [
        events.Segment.model_construct(at=99.0),
        events.WorkerLost(instance=instance, pid=pid, reason="killed", at=101.0),
        events.NodeNotice(instance=instance, kind="spot", deadline=9.0, at=102.0),  # beside it
        events.WorkerStarted(instance=instance, pid=8, spare=False, at=103.0),
        events.WorkerReady(instance=instance, pid=8, at=107.0),
        events.Formed(generation=2, members=(), digest="d", phases={}, background={}, at=107.5),
        events.WorkerLost(instance=instance, pid=8, reason="later", at=130.0),
    ]
    still = Standstill(100.0, 108.0)
    assert standstill_causes(still, reversed(heard)) == {
        "patience": 1.0,
        "starts": 6.0,
        "formation": 0.5,
        "first_step": 0.5,
    }
    assert sum(standstill_causes(still, heard).values()) == still.duration_seconds
    assert standstill_causes(Standstill(0.0, 3.0), heard) == {"first_step": 3.0}
    lines = standstill_report([Standstill(0.0, 1.0), still, Standstill(120.0, 123.0)], heard, faults_end=104.0)
    assert (lines["longest_stall_seconds"], lines["longest_stall_after_faults_seconds"]) == (8.0, 4.0)
    assert lines["longest_stall_parts"] == standstill_causes(still, heard)
    assert standstill_report([], heard, 0.0)["longest_stall_seconds"] == 0.0


def test_what_ends_stuck_prints_what_was_said_last(tmp_path: Path) -> None:
    """The files go with the cloud, and a hunt cannot be repeated exactly."""
    stuck, fine = "i-0000000000000000a", "i-0000000000000000b"
    for machine in (stuck, fine):
        logs = tmp_path / "machines" / machine / "var" / "log" / "dyntrain"
        logs.mkdir(parents=True)
        (logs / "node.log").write_text("".join(f"{machine} {number}\n" for number in range(1000)))
        (logs / "coordinator.log").write_text(f"coordinator on {machine}\n")
    (tmp_path / "logs").mkdir()
    entries = [{"level": "INFO", "message": "event"}, {"level": "ERROR", "message": "refused"}]
    (tmp_path / "logs" / "handler-0.log").write_text(
        "".join(json.dumps(entry) + "\n" for entry in entries) + "half a l"
    )
    lines = list(last_log_lines(tmp_path, [f"{stuck} is wanted, but its status is WAITING PREPARING"]))
    assert [line.strip() for line in lines if line.startswith(" ")] == [
        *(f"{stuck} {number}" for number in range(1000 - TAIL_LINES, 1000)),
        f"coordinator on {stuck}",
        f"coordinator on {fine}",
        json.dumps(entries[1]),
    ]
    assert f"node.log of {stuck}, last lines:" in lines
