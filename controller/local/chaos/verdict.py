"""Compare the observed state of the cluster with the users' last requests. All functions of this module are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dyntrain.controller.local.chaos.people import UserRequests
from dyntrain.training.events import CoolingDown, Event, Readmitted

GOOD_ACCURACY = 0.9
FINAL_TAGS = ("", "REMOVED", "PREPARE_FAILED")  # allowed status tags of a terminated instance


@dataclass(frozen=True)
class ClusterState:
    """The observed state of the cluster and its job."""

    states: Mapping[str, str]  # the EC2 state of each instance
    tags: Mapping[str, str]  # the status tag of each instance, or ""
    base: frozenset[str]  # the instances that are base nodes
    grouped: Mapping[str, str]  # the lifecycle state of each member of the group
    capacity: int  # the group's desired capacity
    nodes: Mapping[str, tuple[str, str]]  # the controller's status of each node, and its reason
    job: str  # the job's state, or "" if the job does not report

    def status_text(self, instance: str) -> str:
        return " ".join(self.nodes.get(instance, ("unknown to the controller",)))


@dataclass
class Verdict:
    """The differences between the cluster's observed state and the users' requests."""

    stuck: list[str] = field(default_factory=list)  # one sentence for each difference
    unwanted: list[str] = field(default_factory=list)  # unwanted instances that are not terminated

    @property
    def is_clean(self) -> bool:
        return not self.stuck and not self.unwanted


def judge_state(state: ClusterState, requests: UserRequests) -> Verdict:
    verdict = Verdict()
    if state.job != "running":
        verdict.stuck.append(f"the job is {state.job or 'silent: it does not report'}")
    if state.capacity != requests.capacity:
        verdict.stuck.append(f"the group's desired capacity is {state.capacity}, users requested {requests.capacity}")
    if len(state.grouped) != requests.capacity:
        members_text = _members_text(state.grouped)
        verdict.stuck.append(
            f"the group has {len(state.grouped)} instances ({members_text}), users requested {requests.capacity}"
        )
    for instance in sorted(state.states):
        if instance in state.base or instance in state.grouped or requests.by_hand.get(instance):
            _check_wanted_instance(instance, state, requests, verdict)
        else:
            _check_unwanted_instance(instance, state, verdict)
    return verdict


def _check_wanted_instance(instance: str, state: ClusterState, requests: UserRequests, verdict: Verdict) -> None:
    ec2_state = state.states[instance]
    if ec2_state != "running":
        if instance not in requests.once_untagged:  # an untagged instance may be terminated before users tag it again
            verdict.stuck.append(f"{instance} is wanted, but it is {ec2_state}")
        return
    if state.nodes.get(instance, ("", ""))[0] != "ADDED":
        verdict.stuck.append(f"{instance} is wanted, but its status is {state.status_text(instance)}")
    elif instance not in state.base and state.tags.get(instance) != "ADDED":  # base nodes carry no status tag
        verdict.stuck.append(f"{instance} is ADDED, but its tag says {state.tags.get(instance) or 'nothing'}")
    if instance in state.grouped and state.grouped[instance] != "InService":
        verdict.stuck.append(f"{instance} is {state.grouped[instance]} in its group")


def _check_unwanted_instance(instance: str, state: ClusterState, verdict: Verdict) -> None:
    if state.states[instance] != "terminated":
        verdict.unwanted.append(instance)
        verdict.stuck.append(
            f"{instance} is not wanted, but it is {state.states[instance]}; status: {state.status_text(instance)}"
        )
    elif state.tags.get(instance, "") not in FINAL_TAGS:
        verdict.stuck.append(f"{instance} is terminated, but its tag says {state.tags[instance]}")


def _members_text(lifecycle_states: Mapping[str, str]) -> str:
    return (
        ", ".join(f"{instance} {lifecycle_state}" for instance, lifecycle_state in sorted(lifecycle_states.items()))
        or "none"
    )


def last_cool_down_end(events: Iterable[Event]) -> float:
    """The time at which the last cool-down of a failed node ends, in seconds since the Unix epoch. Returns 0.0 if no
    node waits for the end of a cool-down.
    """
    cool_down_end_by_node: dict[str, float] = {}
    for event in events:
        if isinstance(event, CoolingDown):
            cool_down_end_by_node[event.instance] = event.at + event.seconds
        elif isinstance(event, Readmitted):
            cool_down_end_by_node.pop(event.instance, None)
    return max(cool_down_end_by_node.values(), default=0.0)


def build_hunt_report(
    seed: int,
    hunt_seconds: float,
    faults: Mapping[str, int],
    change_count: int,
    verdict: Verdict,
    strays: list[str],
    job: Mapping[str, Any],
) -> dict[str, Any]:
    """Build the report of a fault-injection hunt, as a dict for a JSON file. `job` has the keys samples_lost,
    samples_doubled and final_accuracy, and the keys of the result of `standstill.standstill_report`.
    """
    return {
        "seed": seed,
        "seconds": round(hunt_seconds, 1),
        "faults": dict(sorted(faults.items())),
        "changes": change_count,
        "samples_lost": job["samples_lost"],
        "samples_doubled": job["samples_doubled"],
        "stuck": verdict.stuck,
        "orphans": [*verdict.unwanted, *strays],
        "final_accuracy": job["final_accuracy"],
        **{name: value for name, value in job.items() if name.startswith("longest_stall")},
    }


def report_problems(written_report: Mapping[str, Any]) -> list[str]:
    """The problems in a hunt's report, one line for each problem; empty for a hunt without problems."""
    problem_lines = [f"stuck: {line}" for line in written_report["stuck"]] + [
        f"left over: {line}" for line in written_report["orphans"]
    ]
    if written_report["samples_lost"] is None:
        problem_lines.append("the job has no ledger, so its samples cannot be audited")
    elif written_report["samples_lost"] or written_report["samples_doubled"]:
        problem_lines.append(
            f"{written_report['samples_lost']} samples lost, {written_report['samples_doubled']} doubled"
        )
    if written_report["final_accuracy"] is None or written_report["final_accuracy"] < GOOD_ACCURACY:
        problem_lines.append(f"the accuracy is {written_report['final_accuracy']}, below {GOOD_ACCURACY}")
    return problem_lines
