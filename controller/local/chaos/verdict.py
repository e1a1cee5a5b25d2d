"""Whether everything is as people wished: pure, from what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dyntrain.controller.local.chaos.people import Wishes
from dyntrain.training.events import CoolingDown, Event, Readmitted

GOOD_ACCURACY = 0.9
SETTLED = ("", "REMOVED", "PREPARE_FAILED")  # what the tag of an instance that is gone may say


@dataclass(frozen=True)
class Seen:
    """`states` and `tags` by instance: its true state, and what its status tag says ("" without). `grouped`: members of
    the group and their phase. `nodes`: status and reason of each that the controller knows.
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
    """`stuck`: what is not as wished. `unwanted`: instances that nobody wants and that still run."""

    stuck: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.stuck and not self.unwanted


def judge(seen: Seen, wishes: Wishes) -> Verdict:
    verdict = Verdict()
    if seen.job != "running":
        verdict.stuck.append(f"the job is {seen.job or 'silent'}")
    if seen.capacity != wishes.capacity:
        verdict.stuck.append(f"the group's desired capacity is {seen.capacity}, people asked for {wishes.capacity}")
    if len(seen.grouped) != wishes.capacity:
        verdict.stuck.append(
            f"the group has {len(seen.grouped)} instances ({_listed(seen.grouped)}), people asked for {wishes.capacity}"
        )
    for instance in sorted(seen.states):
        if instance in seen.base or instance in seen.grouped or wishes.by_hand.get(instance):
            _wanted(instance, seen, wishes, verdict)
        else:
            _unwanted(instance, seen, verdict)
    return verdict


def _wanted(instance: str, seen: Seen, wishes: Wishes, verdict: Verdict) -> None:
    state = seen.states[instance]
    if state != "running":
        if instance not in wishes.hesitated:  # else its termination was ordered before it was tagged again
            verdict.stuck.append(f"{instance} is wanted and {state}")
        return
    if seen.nodes.get(instance, ("", ""))[0] != "ADDED":
        verdict.stuck.append(f"{instance} is wanted and {seen.status(instance)}")
    elif instance not in seen.base and seen.tags.get(instance) != "ADDED":  # base nodes carry no status tag
        verdict.stuck.append(f"{instance} is ADDED, its tag says {seen.tags.get(instance) or 'nothing'}")
    if instance in seen.grouped and seen.grouped[instance] != "InService":
        verdict.stuck.append(f"{instance} is {seen.grouped[instance]} in its group")


def _unwanted(instance: str, seen: Seen, verdict: Verdict) -> None:
    if seen.states[instance] != "terminated":
        verdict.unwanted.append(instance)
        verdict.stuck.append(f"{instance} is not wanted and {seen.states[instance]}, {seen.status(instance)}")
    elif seen.tags.get(instance, "") not in SETTLED:
        verdict.stuck.append(f"{instance} is terminated, its tag says {seen.tags[instance]}")


def _listed(phases: Mapping[str, str]) -> str:
    return ", ".join(f"{instance} {phase}" for instance, phase in sorted(phases.items())) or "none"


def last_cool_down(events: Iterable[Event]) -> float:
    """When the last of the cool-downs ends that the job's events tell of; 0.0 when all are over."""
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
    """The report. `job`: samples_lost, samples_doubled, final_accuracy, and the keys of `standstill.stall_report`."""
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


def problems(written: Mapping[str, Any]) -> list[str]:
    """One line for each thing that a clean run does not have."""
    lines = [f"stuck: {line}" for line in written["stuck"]] + [f"left over: {line}" for line in written["orphans"]]
    if written["samples_lost"] is None:
        lines.append("there is no ledger to audit")
    elif written["samples_lost"] or written["samples_doubled"]:
        lines.append(f"{written['samples_lost']} samples lost, {written['samples_doubled']} doubled")
    if written["final_accuracy"] is None or written["final_accuracy"] < GOOD_ACCURACY:
        lines.append(f"the accuracy is {written['final_accuracy']}, below {GOOD_ACCURACY}")
    return lines
