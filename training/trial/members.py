"""Program that runs a script by `dyntrain launch` on this machine, with the planned membership changes.

    python -m dyntrain.training.trial.members FOLDER PLAN COMMAND...

The module is a separate program, so that one log file contains the launcher's output and the workers' output. After
each step with a planned change, all workers wait until the joining or restarted worker is ready. Each membership change
thus happens at its planned step, even on a slow machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import Target
from dyntrain.training.launch.command import launch
from dyntrain.training.launch.host_file import FileHosts, instance_of
from dyntrain.training.launch.plan import parse as parse_launch
from dyntrain.training.trial.plan import TrialPlan, parse
from dyntrain.training.trial_files import VARIABLE, Order, saved_steps

CHECK_SECONDS = 0.05  # seconds between two checks of a condition
TARGET_READS = 2  # reads of the target number of workers after which the coordinator has obeyed the first target
EVENTS_FILE = "events.jsonl"
BASE_HOST = "127.0.0.1"


class PlannedHosts(FileHosts):
    """The job's hosts, which follow the experiment's plan instead of a host file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [BASE_HOST], elastic=False)
        self.reads = 0

    def read_target(self) -> Target:
        self.reads += 1
        return super().read_target()


def hosts_of(present_hosts: Sequence[str], workers: int, joined_count: int) -> tuple[str, ...]:
    """Return the hosts for the next planned number of workers, `workers`. Pure.

    The first host always stays; of the other hosts, those that were added first leave first. `joined_count`: number of
    hosts added so far, so that no address is used twice.
    """
    base_host, *added_hosts = present_hosts
    if workers <= len(present_hosts):
        return (base_host, *added_hosts[len(present_hosts) - workers :])
    return (*present_hosts, *(f"127.0.0.{2 + joined_count + index}" for index in range(workers - len(present_hosts))))


def all_ready(events: Sequence[dict[str, Any]], instances: Sequence[str], lost_count: int) -> bool:
    """Whether at least `lost_count` workers were lost, and the last event of each instance is that its worker became
    ready. Pure.
    """
    if sum(event.get("event") == "worker_lost" for event in events) < lost_count:
        return False
    last_events: dict[object, object] = {}
    for event in events:
        if event.get("event") in ("worker_ready", "worker_lost"):
            last_events[event.get("instance")] = event["event"]
    return all(last_events.get(instance) == "worker_ready" for instance in instances)


async def make_changes(plan: TrialPlan, order: Order, hosts: PlannedHosts) -> None:
    """Make each planned membership change after its step, and let the workers continue when the change is complete."""
    workers_by_step, joined_count = {change.step: change.workers for change in plan.changes}, 0
    for step in plan.steps:
        await _wait_until(partial(_is_step_done, order, step))
        if step in workers_by_step:
            next_hosts = hosts_of(hosts.hosts, workers_by_step[step], joined_count)
            joined_count += len(set(next_hosts) - set(hosts.hosts))
            hosts.set_hosts(next_hosts, "the plan of this experiment")
        hosts.reads, lost_count = 0, sum(kill.step <= step for kill in plan.kills)
        instance_names = [instance_of(host) for host in hosts.hosts]
        await _wait_until(partial(_are_workers_ready, order, hosts, instance_names, lost_count))
        order.gate_file(step).touch()


def _is_step_done(order: Order, step: int) -> bool:
    return any(saved_step.step == step for saved_step, _ in saved_steps(order.steps_folder))


def _are_workers_ready(order: Order, hosts: PlannedHosts, instances: Sequence[str], lost_count: int) -> bool:
    return hosts.reads > TARGET_READS and all_ready(events_of(order), instances, lost_count)


async def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the condition is in files of other processes
        await asyncio.sleep(CHECK_SECONDS)


def events_of(order: Order) -> list[dict[str, Any]]:
    """Return the events that the job has written so far, without an incomplete last line."""
    try:
        lines = (order.folder / EVENTS_FILE).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


async def train(folder: Path, plan: TrialPlan, command: Sequence[str]) -> int:
    """Run the script as a job with the planned membership changes; returns the exit code of `launch`."""
    order_file = folder / "order.json"
    order = Order.model_validate_json(order_file.read_text())
    options = ["-n", "1", "--launcher", "local", "--segment-steps", "1", "--boundary", "segment"]
    options += ["--env-worker", f"{VARIABLE}:{order_file}", "--events", str(folder / EVENTS_FILE)]
    hosts = PlannedHosts(folder)
    changes_task = asyncio.create_task(make_changes(plan, order, hosts))
    try:
        return await launch(parse_launch([*options, *command]), folder, hosts)
    finally:
        changes_task.cancel()
        await asyncio.gather(changes_task, return_exceptions=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    plan = TrialPlan() if not sys.argv[2] else parse(sys.argv[2])
    sys.exit(asyncio.run(train(Path(sys.argv[1]), plan, sys.argv[3:])))
