"""The demo: a job on the embedded cloud (an emulation of AWS) gains and loses workers while it trains. The demo watches
the job from outside and writes a report.

The demo ends after its last step, while the job still trains, so the number of trained epochs depends on the host's
speed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.demo.display import PatientDisplay, choose_display
from dyntrain.controller.local.demo.narration import Narrator
from dyntrain.controller.local.demo.observer import Observations, Observer
from dyntrain.controller.local.demo.report import DemoRequest, build_report, shortcomings
from dyntrain.controller.local.demo.statuses import read_trail, wait_until_removed
from dyntrain.controller.local.stack import Cluster, create_stack, digits_command, write_prepare_script
from dyntrain.controller.local.viewer import run_dashboard
from dyntrain.training import events
from dyntrain.training.audit import Audit, audit_directory
from dyntrain.training.report.source import audit_text, write_page
from dyntrain.training.report.story import Story as JobStory
from dyntrain.training.report.story import story_of_events

CLUSTER_NAME = "demo"
STORY_STEP_SECONDS = 60.0  # bound of each step of the story
END_SECONDS = 15.0  # limit for the end of all elastic instances


@dataclass
class DemoStory:
    """The demo's steps, which a user could also carry out in the AWS console. Each step begins when the effect of the
    previous step is visible.
    """

    cloud: Cloud
    cluster: Cluster
    observer: Observer
    display: PatientDisplay
    joins: list[DemoRequest] = field(default_factory=list)
    leaves: list[DemoRequest] = field(default_factory=list)

    def run(self) -> None:
        """Run all steps of the demo. Raises TimeoutError when a step has no visible effect in time."""
        ec2, autoscaling = self.cloud.client("ec2"), self.cloud.client("autoscaling")
        self._wait_until(
            lambda observations: len(observations.of_type(events.Joined)) > len(self.cluster.workers),
            "the base nodes train",
        )

        self.display.show_line(f"> run-instances from {self.cluster.launch_template}")
        requested_at = time.time()
        launch_answer = ec2.run_instances(
            LaunchTemplate={"LaunchTemplateName": self.cluster.launch_template}, MinCount=1, MaxCount=1
        )
        launched_instance = str(launch_answer["Instances"][0]["InstanceId"])
        self._wait_for_join(launched_instance, requested_at)

        self.display.show_line(f"> set-desired-capacity {self.cluster.group} 1")
        requested_at = time.time()
        known_instances = set(self.observer.observations.states)
        autoscaling.set_desired_capacity(AutoScalingGroupName=self.cluster.group, DesiredCapacity=1)
        self._wait_until(
            lambda observations: bool(set(observations.states) - known_instances), "the group launches an instance"
        )
        group_instance = next(iter(set(self.observer.observations.states) - known_instances))
        self._wait_for_join(group_instance, requested_at)

        self.display.show_line(f"> delete-tags {launched_instance} {ELASTIC_TAG.of(self.cluster.name)}")
        requested_at = time.time()
        ec2.delete_tags(Resources=[launched_instance], Tags=[{"Key": ELASTIC_TAG.of(self.cluster.name)}])
        self._wait_for_leave(launched_instance, requested_at)

        self.display.show_line(f"> set-desired-capacity {self.cluster.group} 0")
        requested_at = time.time()
        autoscaling.set_desired_capacity(AutoScalingGroupName=self.cluster.group, DesiredCapacity=0)
        self._wait_for_leave(group_instance, requested_at)

        epoch_count = len(self.observer.observations.of_type(events.Segment))
        self._wait_until(
            lambda observations: len(observations.of_type(events.Segment)) > epoch_count,
            "an epoch ends with the remaining workers",
        )
        self.display.show_line("> the demo is over; the job would train on")

    def _wait_for_join(self, instance: str, requested_at: float) -> None:
        self.joins.append(DemoRequest(instance, requested_at))
        self._wait_until(lambda observations: observations.status(instance) == "ADDED", f"{instance} is ADDED")

    def _wait_for_leave(self, instance: str, requested_at: float) -> None:
        self.leaves.append(DemoRequest(instance, requested_at))
        self._wait_until(
            lambda observations: observations.states.get(instance) == "terminated", f"{instance} is terminated"
        )

    def _wait_until(self, condition: Callable[[Observations], bool], description: str) -> None:
        def condition_holds(observations: Observations) -> bool:
            if any(isinstance(event, events.Finished | events.Failed) for event in observations.events):
                raise TimeoutError(f"the training ended too early for this: {description}; give more --epochs")
            return condition(observations)

        self.display.set_activity(f"waiting until {description}")
        self.observer.wait_for(condition_holds, STORY_STEP_SECONDS, description)


def run_demo(
    report_path: Path,
    epochs: int,
    port: int = 0,
    picture: Path | None = None,
    stay: Callable[[], None] | None = None,
) -> int:
    """Run the demo and write its report. Returns exit code 0 if the demo had no problems, otherwise exit code 1. `stay`
    is a function that waits while a user looks at the dashboard. Without `stay`, the dashboard stops at the end of the
    demo.
    """
    display = choose_display(picture)
    with ExitStack() as exit_stack:
        display_stack = exit_stack.enter_context(ExitStack())
        display_stack.callback(display.close)
        display.set_activity("the embedded cloud starts")
        cloud = exit_stack.enter_context(Cloud(port=port, resync_seconds=5.0))
        display.show_line(f"embedded cloud at {cloud.endpoint}")
        display.set_activity("the page starts")
        page_address = (
            f"{exit_stack.enter_context(run_dashboard(cloud.environment, cloud.state_dir, 0))}#/cluster/{CLUSTER_NAME}"
        )
        display.show_line(
            f"dashboard, {'until Ctrl-C' if stay else 'while this runs (--stay: longer)'}: {page_address}"
        )
        report, problems, page_input = _play_story(cloud, display, epochs)
        display.set_activity("" if stay else "the cloud stops")
        if stay is None:
            exit_stack.close()
        display_stack.close()
        _write_report(report_path, report, problems, page_input)
        if stay is not None:
            print(f"the cluster trains on, and the page stays until Ctrl-C: {page_address}")
            stay()
    return 1 if problems else 0


def _write_report(
    report_path: Path, report: dict[str, Any], problems: Sequence[str], page_input: tuple[JobStory, str] | None
) -> None:
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text(json.dumps(report, indent=2) + "\n")
    print(summary_text(report, report_path))
    if page_input is not None:
        write_page(report_path.with_suffix(".html"), *page_input)
        print(f"page               {report_path.with_suffix('.html')}")
    for problem in problems:
        print(f"PROBLEM: {problem}")


def _play_story(
    cloud: Cloud, display: PatientDisplay, epochs: int
) -> tuple[dict[str, Any], list[str], tuple[JobStory, str] | None]:
    """Create the demo's cluster and run the demo's steps. Returns the report, the problems, and the input of the
    report's HTML page, which is None if the job had no events.
    """
    shared_folder = cloud.state_dir / "shared"
    display.set_activity("the cluster's stack is created")
    write_prepare_script(shared_folder)
    command = digits_command(epochs, "--size", "48", "--batch-size", "100")
    cluster = create_stack(cloud, CLUSTER_NAME, command, policy={"resync_seconds": 5.0})
    observer = Observer(cloud.client("ec2"), CLUSTER_NAME, shared_folder, display.show_line)
    observer.on_event = Narrator(display).show_event
    observer.start()
    story = DemoStory(cloud, cluster, observer, display)
    problems = []
    try:
        story.run()
    except TimeoutError as error:
        problems.append(str(error))
    display.set_activity("waiting until all elastic instances have ended")
    with suppress(TimeoutError):  # the report names instances that still run
        observer.wait_for(
            lambda observations: not observations.running_ids(), END_SECONDS, "the end of all elastic instances"
        )
    observer.stop()
    display.set_activity("the job's samples are audited")
    audit = _audit_samples(observer)
    dynamodb = cloud.client("dynamodb")
    left_instances = {leave.instance for leave in story.leaves}
    statuses = wait_until_removed(lambda: read_trail(dynamodb, cloud.table, CLUSTER_NAME), left_instances, END_SECONDS)
    report = build_report(observer.observations, statuses, audit, story.joins, story.leaves, shared_folder)
    job_events = observer.observations.events
    page_input = (
        (story_of_events(f"{CLUSTER_NAME}: the demo", job_events), audit_text(observer.ledger_folder.parent))
        if job_events
        else None
    )
    return report, problems + shortcomings(report), page_input


def _audit_samples(observer: Observer) -> Audit:
    """The audit of the job's samples; an empty audit if the job has not begun."""
    try:
        return audit_directory(observer.ledger_folder)
    except (OSError, ValueError):
        return Audit(0)


def summary_text(report: dict[str, Any], report_path: Path) -> str:
    total_seconds = sum(epoch["seconds"] for epoch in report["epochs"])
    pauses = report["pauses_seconds"]
    worker_counts = "-".join(str(epoch["workers"]) for epoch in report["epochs"])
    return "\n".join(
        [
            "",
            f"epochs             {len(report['epochs'])} in {total_seconds:.0f} s, workers {worker_counts}",
            f"joined, left       {len(report['joins'])}, {len(report['leaves'])}",
            f"pauses             {', '.join(f'{pause:.2f} s' for pause in pauses) or 'none'}",
            f"samples            {report['samples_lost']} lost, {report['samples_doubled']} doubled "
            f"in the {report['epochs_audited']} epochs up to the last change",
            f"survivors' pids    {'unchanged' if report['survivor_pids_unchanged'] else 'CHANGED'}",
            f"left running       {', '.join(report['instances_left_running']) or 'none of the elastic instances'}",
            f"validation         {_accuracy_text(report)}",
            f"report             {report_path}",
        ]
    )


def _accuracy_text(report: dict[str, Any]) -> str:
    if not report["epochs"]:
        return "none"
    first_accuracy, last_accuracy = report["epochs"][0]["val_accuracy"], report["final_val_accuracy"]
    return f"{first_accuracy:.3f} after the first epoch, {last_accuracy:.3f} after the last"
