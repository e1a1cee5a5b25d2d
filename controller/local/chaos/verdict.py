"""Compare the observed state of the cluster with the users' last requests. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dyntrain.controller.local.chaos.people import Wishes
from dyntrain.training.events import CoolingDown, Event, Readmitted

GOOD_ACCURACY = 0.9
FINAL_TAGS = ("", "REMOVED", "PREPARE_FAILED")  # allowed status tags of a terminated instance


@dataclass(frozen=True)
class ClusterState:
    """The observed state. `states` and `tags`: the EC2 state and the status tag of each instance ("" without a tag).
    `grouped`: the lifecycle state of each group member. `nodes`: the controller's status and reason for each node.
    """

    states: Mapping[str, str]
    tags: Mapping[str, str]
    base: frozenset[str]
    grouped: Mapping[str, str]
    capacity: int
    nodes: Mapping[str, tuple[str, str]]
    job: str

    def status(self, instance: str) -> str:
        return " ".join(self.nodes.get(instance, ("unknown to the controller",)))


@dataclass
class Verdict:
    """The differences between state and requests. `stuck`: one sentence for each difference. `unwanted`: instances that
    nobody wants and that are not terminated.
    """

    stuck: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.stuck and not self.unwanted


def judge(observed: ClusterState, wishes: Wishes) -> Verdict:
    verdict = Verdict()
    if observed.job != "running":
        verdict.stuck.append(f"the job is {observed.job or 'silent: it does not report'}")
    if observed.capacity != wishes.capacity:
        verdict.stuck.append(f"the group's desired capacity is {observed.capacity}, users requested {wishes.capacity}")
    if len(observed.grouped) != wishes.capacity:
        names = _listed_members(observed.grouped)
        verdict.stuck.append(
            f"the group has {len(observed.grouped)} instances ({names}), users requested {wishes.capacity}"
        )
    for instance in sorted(observed.states):
        if instance in observed.base or instance in observed.grouped or wishes.by_hand.get(instance):
            _check_wanted(instance, observed, wishes, verdict)
        else:
            _check_unwanted(instance, observed, verdict)
    return verdict


def _check_wanted(instance: str, observed: ClusterState, wishes: Wishes, verdict: Verdict) -> None:
    state = observed.states[instance]
    if state != "running":
        if instance not in wishes.once_untagged:  # an untagged instance may be terminated before users tag it again
            verdict.stuck.append(f"{instance} is wanted, but it is {state}")
        return
    if observed.nodes.get(instance, ("", ""))[0] != "ADDED":
        verdict.stuck.append(f"{instance} is wanted, but its status is {observed.status(instance)}")
    elif instance not in observed.base and observed.tags.get(instance) != "ADDED":  # base nodes carry no status tag
        verdict.stuck.append(f"{instance} is ADDED, but its tag says {observed.tags.get(instance) or 'nothing'}")
    if instance in observed.grouped and observed.grouped[instance] != "InService":
        verdict.stuck.append(f"{instance} is {observed.grouped[instance]} in its group")


def _check_unwanted(instance: str, observed: ClusterState, verdict: Verdict) -> None:
    if observed.states[instance] != "terminated":
        verdict.unwanted.append(instance)
        verdict.stuck.append(
            f"{instance} is not wanted, but it is {observed.states[instance]}; status: {observed.status(instance)}"
        )
    elif observed.tags.get(instance, "") not in FINAL_TAGS:
        verdict.stuck.append(f"{instance} is terminated, but its tag says {observed.tags[instance]}")


def _listed_members(phases: Mapping[str, str]) -> str:
    return ", ".join(f"{instance} {phase}" for instance, phase in sorted(phases.items())) or "none"


def last_cool_down(events: Iterable[Event]) -> float:
    """The time at which the last cool-down in the job's events ends; 0.0 if all nodes were readmitted."""
    ends: dict[str, float] = {}
    for event in events:
        if isinstance(event, CoolingDown):
            ends[event.instance] = event.at + event.seconds
        elif isinstance(event, Readmitted):
            ends.pop(event.instance, None)
    return max(ends.values(), default=0.0)


def report(
    seed: int,
    seconds: float,
    faults: Mapping[str, int],
    changes: int,
    verdict: Verdict,
    strays: list[str],
    job: Mapping[str, Any],
) -> dict[str, Any]:
    """The hunt's report. `job` has samples_lost, samples_doubled, final_accuracy and the keys of
    `standstill.stall_report`.
    """
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "faults": dict(sorted(faults.items())),
        "changes": changes,
        "samples_lost": job["samples_lost"],
        "samples_doubled": job["samples_doubled"],
        "stuck": verdict.stuck,
        "orphans": [*verdict.unwanted, *strays],
        "final_accuracy": job["final_accuracy"],
        **{name: value for name, value in job.items() if name.startswith("longest_stall")},
    }


def problems(contents: Mapping[str, Any]) -> list[str]:
    """The problems in the written report, one line each; a clean run has none."""
    lines = [f"stuck: {line}" for line in contents["stuck"]] + [f"left over: {line}" for line in contents["orphans"]]
    if contents["samples_lost"] is None:
        lines.append("the job has no ledger, so its samples cannot be audited")
    elif contents["samples_lost"] or contents["samples_doubled"]:
        lines.append(f"{contents['samples_lost']} samples lost, {contents['samples_doubled']} doubled")
    if contents["final_accuracy"] is None or contents["final_accuracy"] < GOOD_ACCURACY:
        lines.append(f"the accuracy is {contents['final_accuracy']}, below {GOOD_ACCURACY}")
    return lines
