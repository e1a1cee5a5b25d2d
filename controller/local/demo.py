"""The demo: a job on the embedded cloud that gains and loses workers while it trains, watched from outside, with a report at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.contract import elastic_tag
from controller.local.cloud import Cloud
from controller.local.cluster import Cluster, ClusterPlan, digits_command, provision, write_prepare_script
from controller.local.demo_report import Request, build_report, shortcomings
from controller.local.display import Display, choose_display
from controller.local.observer import Observations, Observer
from training.audit import audit_directory

CLUSTER = "demo"
STEP_SECONDS = 60.0  # bound of each step of the story
JOB_SECONDS = 150.0
RELEASE_SECONDS = 15.0


@dataclass
class Story:
    """The steps a person would take in the console, each begun when the one before is seen to be done."""

    cloud: Cloud
    cluster: Cluster
    observer: Observer
    display: Display
    joins: list[Request] = field(default_factory=list)
    leaves: list[Request] = field(default_factory=list)

    def run(self) -> None:
        """Raises TimeoutError when a step is not seen to be done in time."""
        ec2, autoscaling = self.cloud.client("ec2"), self.cloud.client("autoscaling")
        self._wait(lambda seen: len(seen.of("segment")) >= 1, "the first epoch")

        self.display.tell(f"> run-instances from {self.cluster.launch_template}")
        began = time.time()
        answer = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": self.cluster.launch_template}, MinCount=1, MaxCount=1)
        first = str(answer["Instances"][0]["InstanceId"])
        self._joins(first, began)

        self.display.tell(f"> set-desired-capacity {self.cluster.group} 1")
        began = time.time()
        known = set(self.observer.seen.states)
        autoscaling.set_desired_capacity(AutoScalingGroupName=self.cluster.group, DesiredCapacity=1)
        self._wait(lambda seen: bool(set(seen.states) - known), "the group launches an instance")
        second = next(iter(set(self.observer.seen.states) - known))
        self._joins(second, began)

        self.display.tell(f"> delete-tags {first} {elastic_tag(self.cluster.name)}")
        began = time.time()
        ec2.delete_tags(Resources=[first], Tags=[{"Key": elastic_tag(self.cluster.name)}])
        self._leaves(first, began)

        self.display.tell(f"> set-desired-capacity {self.cluster.group} 0")
        began = time.time()
        autoscaling.set_desired_capacity(AutoScalingGroupName=self.cluster.group, DesiredCapacity=0)
        self._leaves(second, began)

        self.observer.wait_for(lambda seen: bool(seen.of("finished") or seen.of("failed")), JOB_SECONDS, "the end of the training")

    def _joins(self, instance: str, began: float) -> None:
        self.joins.append(Request(instance, began))
        self._wait(lambda seen: seen.statuses.get(instance, [])[-1:] == ["ADDED"], f"{instance} is ADDED")

    def _leaves(self, instance: str, began: float) -> None:
        self.leaves.append(Request(instance, began))
        self._wait(lambda seen: seen.states.get(instance) == "terminated", f"{instance} is terminated")

    def _wait(self, what: Callable[[Observations], bool], description: str) -> None:
        def done(seen: Observations) -> bool:
            if seen.of("finished") or seen.of("failed"):
                raise TimeoutError(f"the training ended before this was seen: {description}; give it more --epochs")
            return what(seen)

        self.observer.wait_for(done, STEP_SECONDS, description)


def run_demo(report_path: Path, epochs: int, port: int = 0) -> int:
    """Exit code 0 when the story went as told. Writes the report whatever happened, as far as it was seen."""
    display = choose_display()
    try:
        with Cloud(port=port, resync_seconds=5.0) as cloud:
            display.tell(f"embedded cloud at {cloud.endpoint}")
            report, problems = _play(cloud, display, epochs)
    finally:
        display.close()
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text(json.dumps(report, indent=2) + "\n")
    print(summary(report, report_path))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


def _play(cloud: Cloud, display: Display, epochs: int) -> tuple[dict[str, Any], list[str]]:
    mount = cloud.state_dir / "shared"
    plan = ClusterPlan(
        cluster=CLUSTER,
        mount=mount,
        training_cmd=digits_command(mount, epochs, "--size", "64", "--batch-size", "100"),
        prepare_script=write_prepare_script(mount),
        policy={"resync_seconds": 5.0},
        identity_keys=cloud.identity_keys,
    )
    cluster = provision(cloud.environment, plan)
    observer = Observer(cloud.client("ec2"), CLUSTER, mount, display.tell)
    observer.on_event = lambda event: _show(display, event)
    observer.start()
    story = Story(cloud, cluster, observer, display)
    problems = []
    try:
        story.run()
    except TimeoutError as error:
        problems.append(str(error))
    with suppress(TimeoutError):  # the controller releases what the job's end left behind; what it does not is in the report
        observer.wait_for(lambda seen: not seen.left_running(), RELEASE_SECONDS, "the end of all elastic instances")
    observer.stop()
    audit = audit_directory(observer.ledger)
    report = build_report(observer.seen, audit, story.joins, story.leaves, mount)
    return report, problems + shortcomings(report)


def _show(display: Display, event: dict[str, Any]) -> None:
    match event["event"]:
        case "segment":
            display.epoch(event)
        case "pause":
            display.tell(f"survivors paused {event['seconds']:.2f} s for generation {event['generation']}")
        case "joined" | "left" as what:
            display.tell(f"{event['instance']}  {what} (worker pid {event['pid']}, generation {event['generation']})")
        case "restart" | "failed":
            display.tell(f"{event['event']}: {event['reason']}")


def summary(report: dict[str, Any], path: Path) -> str:
    seconds = sum(epoch["seconds"] for epoch in report["epochs"])
    pauses = report["pauses_seconds"]
    workers = "-".join(str(epoch["workers"]) for epoch in report["epochs"])
    return "\n".join(
        [
            "",
            f"epochs             {len(report['epochs'])} in {seconds:.0f} s, workers {workers}",
            f"joined, left       {len(report['joins'])}, {len(report['leaves'])}",
            f"pauses             {', '.join(f'{pause:.2f} s' for pause in pauses) or 'none'}",
            f"samples            {report['samples_lost']} lost, {report['samples_doubled']} doubled",
            f"survivors' pids    {'unchanged' if report['survivor_pids_unchanged'] else 'CHANGED'}",
            f"left running       {', '.join(report['instances_left_running']) or 'none of the elastic instances'}",
            f"validation         {report['final_val_accuracy']}",
            f"report             {path}",
        ]
    )
