"""Build the demo's report from the observations of the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyntrain.controller.core.decisions.arrows import Cause, unexplained_statuses
from dyntrain.controller.local.demo.observer import Observations
from dyntrain.controller.local.demo.statuses import Statuses
from dyntrain.training.audit import Audit
from dyntrain.training.events import Forming, Joined, Left, Pause, Segment


@dataclass(frozen=True)
class DemoRequest:
    """A request of the demo that an instance joins or leaves the job, with the time of the request in seconds since the
    Unix epoch.
    """

    instance: str  # instance id
    requested_at: float


def build_report(
    observations: Observations,
    statuses: Statuses,
    audit: Audit,
    joins: list[DemoRequest],
    leaves: list[DemoRequest],
    mount: Path,
) -> dict[str, Any]:
    """Build the demo's report, as a dict for a JSON file. `statuses` are the statuses of each instance in the
    controller's audit trail. `joins` and `leaves` are the demo's requests that instances join and leave the job.
    """
    epochs = [_epoch_entry(event) for event in observations.of_type(Segment) if not event.end.offset]
    return {
        "epochs": epochs,
        "statuses": {instance: [status for _, status in history] for instance, history in statuses.items()},
        "statuses_told": _timed_statuses(statuses),
        "statuses_seen": _timed_statuses(observations.statuses),
        "joins": [_join_entry(observations, request, mount) for request in joins],
        "leaves": [_leave_entry(observations, request) for request in leaves],
        "pauses_seconds": [event.seconds for event in observations.of_type(Pause)],
        "epochs_audited": len(audit.epochs),
        "samples_lost": audit.lost,
        "samples_doubled": audit.doubled,
        "survivor_pids_unchanged": pids_unchanged(observations),
        "instances_left_running": observations.running_ids(),
        "final_val_accuracy": epochs[-1]["val_accuracy"] if epochs else None,
    }


def pids_unchanged(observations: Observations) -> bool:
    """Whether each instance's worker reported the same process id at the end of every segment. The result is False if
    no worker reported a process id.
    """
    pids_by_instance: dict[str, set[int]] = {}
    for event in observations.of_type(Segment):
        for instance, pid in event.pids.items():
            pids_by_instance.setdefault(instance, set()).add(pid)
    return bool(pids_by_instance) and all(len(instance_pids) == 1 for instance_pids in pids_by_instance.values())


def shortcomings(report: dict[str, Any]) -> list[str]:
    """The problems in the demo's report; empty when everything went as planned."""
    problems = []
    if report["samples_lost"] or report["samples_doubled"]:
        problems.append(f"{report['samples_lost']} samples lost, {report['samples_doubled']} doubled")
    if not report["survivor_pids_unchanged"]:
        problems.append("the process id of a remaining worker changed")
    if report["instances_left_running"]:
        problems.append(f"elastic instances still run: {', '.join(report['instances_left_running'])}")
    for status_source in ("told", "seen"):
        for instance, sentence in unexplained_changes(report, report[f"statuses_{status_source}"]):
            problems.append(f"{instance}, statuses_{status_source}: {sentence}")
    expected_statuses = ["ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED"]
    for leave in report["leaves"]:
        statuses = report["statuses"].get(leave["instance"], [])
        if statuses != expected_statuses:
            problems.append(f"{leave['instance']} had the statuses {statuses} instead of {expected_statuses}")
        if leave["terminated_at"] is None:
            problems.append(f"{leave['instance']} was not terminated")
    problems += [f"{join['instance']} never joined" for join in report["joins"] if join["joined_at"] is None]
    return problems


def unexplained_changes(
    report: dict[str, Any], statuses: Mapping[str, list[dict[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """Status changes that none of the demo's requests explains, as (instance, sentence)."""
    timed_requests = [(join["instance"], join["requested_at"], Cause.JOIN_REQUESTED) for join in report["joins"]]
    timed_requests += [(leave["instance"], leave["requested_at"], Cause.MUST_LEAVE) for leave in report["leaves"]]
    for instance, history in statuses.items():
        causes = [(at, cause) for requested_instance, at, cause in timed_requests if requested_instance == instance]
        for sentence in unexplained_statuses([(entry["at"], entry["status"]) for entry in history], causes):
            yield instance, sentence


def _timed_statuses(statuses: Statuses) -> dict[str, list[dict[str, Any]]]:
    return {
        instance: [{"at": at, "status": status} for at, status in history] for instance, history in statuses.items()
    }


def _epoch_entry(event: Segment) -> dict[str, Any]:
    return {
        "epoch": event.epoch,
        "generation": event.generation,
        "workers": event.workers,
        "samples": event.samples,
        "seconds": event.seconds,
        "train_accuracy": event.metrics.get("train_accuracy"),
        "val_accuracy": event.metrics.get("val_accuracy"),
    }


def _join_entry(observations: Observations, request: DemoRequest, mount: Path) -> dict[str, Any]:
    joined_event = next((event for event in observations.of_type(Joined) if event.instance == request.instance), None)
    return {
        "instance": request.instance,
        "requested_at": request.requested_at,
        "prepared_at": _prepared_at(mount, observations.addresses.get(request.instance, "")),
        "joined_at": joined_event and joined_event.at,
        "joined_epoch": joined_event and joined_event.epoch,
    }


def _leave_entry(observations: Observations, request: DemoRequest) -> dict[str, Any]:
    forming_event = next((event for event in observations.of_type(Forming) if request.instance in event.leaving), None)
    left_event = next((event for event in observations.of_type(Left) if event.instance == request.instance), None)
    return {
        "instance": request.instance,
        "requested_at": request.requested_at,
        "left_at": left_event and left_event.at,
        "left_epoch": forming_event and forming_event.position.epoch,
        "terminated_at": observations.terminated_at.get(request.instance),
    }


def _prepared_at(mount: Path, address: str) -> float | None:
    """The time in the success marker, a file that the node wrote to the shared volume after data preparation. Returns
    None if no readable success marker exists.
    """
    try:
        return float(json.loads((mount / f"prepare_data_success_{address}").read_text())["at"])
    except (OSError, ValueError, KeyError):
        return None
