"""Program that runs a script by `dyntrain launch` on this machine, with the planned membership changes.

    python -m dyntrain.training.trial.members FOLDER PLAN COMMAND...

A separate program has its own output and its workers' output in one file. After each planned step the workers wait
until the joining or restarted worker is ready. So each change happens at its planned step, even on a slow machine.
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
from dyntrain.training.trial.plan import Plan, parse
from dyntrain.training.trial_files import VARIABLE, Order, saved_steps

LOOK_SECONDS = 0.05
READS = 2  # reads of the target after which the coordinator has obeyed the first target
EVENTS = "events.jsonl"
BASE = "127.0.0.1"


class PlannedHosts(FileHosts):
    """Hosts that the plan sets, not a host file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [BASE], elastic=False)
        self.reads = 0

    def read_target(self) -> Target:
        self.reads += 1
        return super().read_target()


def hosts_of(present_hosts: Sequence[str], workers: int, joined: int) -> tuple[str, ...]:
    """Return the hosts for the next number of `workers`. Pure.

    The base host stays, and the earliest added hosts leave first. `joined`: number of addresses used so far.
    """
    base, *others = present_hosts
    if workers <= len(present_hosts):
        return (base, *others[len(present_hosts) - workers :])
    return (*present_hosts, *(f"127.0.0.{2 + joined + i}" for i in range(workers - len(present_hosts))))


def all_ready(events: Sequence[dict[str, Any]], instances: Sequence[str], lost: int) -> bool:
    """Whether `lost` workers were lost, and each instance has a ready worker since then. Pure."""
    if sum(event.get("event") == "worker_lost" for event in events) < lost:
        return False
    last: dict[object, object] = {}
    for event in events:
        if event.get("event") in ("worker_ready", "worker_lost"):
            last[event.get("instance")] = event["event"]
    return all(last.get(instance) == "worker_ready" for instance in instances)


async def conduct(plan: Plan, order: Order, hosts: PlannedHosts) -> None:
    """Make all planned changes, each after its step."""
    workers, joined = {each.step: each.workers for each in plan.changes}, 0
    for step in plan.steps:
        await _wait_until(partial(_is_done, order, step))
        if step in workers:
            next_hosts = hosts_of(hosts.hosts, workers[step], joined)
            joined += len(set(next_hosts) - set(hosts.hosts))
            hosts.want(next_hosts, "the plan of this experiment")
        hosts.reads, lost = 0, sum(each.step <= step for each in plan.kills)
        instances = [instance_of(host) for host in hosts.hosts]
        await _wait_until(partial(_is_ready, order, hosts, instances, lost))
        order.gate_file(step).touch()


def _is_done(order: Order, step: int) -> bool:
    return any(saved_step.step == step for saved_step, _ in saved_steps(order.steps_folder))


def _is_ready(order: Order, hosts: PlannedHosts, instances: Sequence[str], lost: int) -> bool:
    return hosts.reads > READS and all_ready(events_of(order), instances, lost)


async def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the condition is in files of other processes
        await asyncio.sleep(LOOK_SECONDS)


def events_of(order: Order) -> list[dict[str, Any]]:
    """Return the job's events so far."""
    try:
        lines = (order.folder / EVENTS).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


async def train(folder: Path, plan: Plan, command: Sequence[str]) -> int:
    """Run the job with the planned changes; return the exit code of `launch`."""
    path = folder / "order.json"
    order = Order.model_validate_json(path.read_text())
    options = ["-n", "1", "--launcher", "local", "--segment-steps", "1", "--boundary", "segment"]
    options += ["--env-worker", f"{VARIABLE}:{path}", "--events", str(folder / EVENTS)]
    hosts = PlannedHosts(folder)
    conducting = asyncio.create_task(conduct(plan, order, hosts))
    try:
        return await launch(parse_launch([*options, *command]), folder, hosts)
    finally:
        conducting.cancel()
        await asyncio.gather(conducting, return_exceptions=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    plan = Plan() if not sys.argv[2] else parse(sys.argv[2])
    sys.exit(asyncio.run(train(Path(sys.argv[1]), plan, sys.argv[3:])))
