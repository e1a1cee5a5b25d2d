"""A tried job of members that come and go: `dyntrain launch` on this machine, whose membership is the plan's.

    python -m dyntrain.training.trial.members FOLDER PLAN COMMAND...

It is a process of its own, so that all that it and its workers write is in one file. After each planned step the
workers wait until who joins stands ready, or who was killed does again: so what is planned happens where it is planned,
however slow the machine is.
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
from dyntrain.training.trial_files import VARIABLE, Order, taken

LOOK_SECONDS = 0.05
READS = 2  # of the target: at the second one the first has been obeyed
EVENTS = "events.jsonl"
BASE = "127.0.0.1"


class PlannedHosts(FileHosts):
    """Without a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [BASE], elastic=False)
        self.reads = 0

    def read_target(self) -> Target:
        self.reads += 1
        return super().read_target()


def hosts_of(before: Sequence[str], workers: int, joined: int) -> tuple[str, ...]:
    """The next hosts: of those that are to leave the one that came first does, but for the base host. `joined`: so many
    addresses have been used. Pure.
    """
    base, *others = before
    if workers <= len(before):
        return (base, *others[len(before) - workers :])
    return (*before, *(f"127.0.0.{2 + joined + i}" for i in range(workers - len(before))))


def standing(events: Sequence[dict[str, Any]], instances: Sequence[str], lost: int) -> bool:
    """Whether so many workers were lost, and each instance has one that trains or stands by after that. Pure."""
    if sum(event.get("event") == "worker_lost" for event in events) < lost:
        return False
    last: dict[object, object] = {}
    for event in events:
        if event.get("event") in ("worker_ready", "worker_lost"):
            last[event.get("instance")] = event["event"]
    return all(last.get(instance) == "worker_ready" for instance in instances)


async def conduct(plan: Plan, order: Order, hosts: PlannedHosts) -> None:
    """To the last of what is planned."""
    workers, joined = {each.step: each.workers for each in plan.changes}, 0
    for step in plan.steps:
        await _until(partial(_is_done, order, step))
        if step in workers:
            wanted = hosts_of(hosts.hosts, workers[step], joined)
            joined += len(set(wanted) - set(hosts.hosts))
            hosts.want(wanted, "the plan of this experiment")
        hosts.reads, lost = 0, sum(each.step <= step for each in plan.kills)
        instances = [instance_of(host) for host in hosts.hosts]
        await _until(partial(_ready, order, hosts, instances, lost))
        order.gate(step).touch()


def _is_done(order: Order, step: int) -> bool:
    return any(at.step == step for at, _ in taken(order.steps_folder))


def _ready(order: Order, hosts: PlannedHosts, instances: Sequence[str], lost: int) -> bool:
    return hosts.reads > READS and standing(events_of(order), instances, lost)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # what is looked at is files of other processes
        await asyncio.sleep(LOOK_SECONDS)


def events_of(order: Order) -> list[dict[str, Any]]:
    """What has happened in the job so far."""
    try:
        lines = (order.folder / EVENTS).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


async def train(folder: Path, plan: Plan, command: Sequence[str]) -> int:
    """As `launch`."""
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
