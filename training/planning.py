"""What the coordinator orders and reports, computed from what it knows: pure pieces of the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from controller.contract import JobMember
from training.generation import Generation
from training.orders import Announce, ToNode
from training.origin import Origin
from training.protocol import CheckIn, Form, GroupReady, NodeHello, Position, PsProcess, StartGroup, WorkerHello

AGREED = ("epochs", "samples", "global_batch", "seed", "batching", "layout")  # what all workers of a job must have in common


@dataclass
class Node:
    """A connected supervisor; `group` is its offer of blank ps-lite processes, gone once used."""

    hello: NodeHello
    group: GroupReady | None = None

    def holds(self, blanks: int) -> bool:
        return self.hello.base and self.group is not None and self.group.blanks >= blanks


@dataclass(frozen=True)
class Group:
    """The ps-lite processes of a generation: what its workers need to know, and the orders that start them."""

    environment: dict[str, str]
    hosts: tuple[str, ...]
    orders: tuple[ToNode, ...]


def choose_scheduler(nodes: Mapping[str, Node]) -> str | None:
    """The base node for ps-lite's scheduler: lowest address among those with a blank for it and one for a server. None: nobody can."""
    return min((i for i, node in nodes.items() if node.holds(2)), key=lambda i: (nodes[i].hello.private_ip, i), default=None)


def plan_group(number: int, nodes: Mapping[str, Node], scheduler: str, workers: int) -> Group:
    """A scheduler on one base node and a server on each that holds blanks: never on an elastic node, whose loss would take state along."""
    root = nodes[scheduler]
    assert root.group is not None
    hosts = tuple(i for i, node in sorted(nodes.items()) if node.holds(2 if i == scheduler else 1))
    environment = {
        "DMLC_PS_ROOT_URI": root.hello.private_ip,
        "DMLC_PS_ROOT_PORT": str(root.group.scheduler_port),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(len(hosts)),
    }
    roles: dict[str, list[Literal["scheduler", "server"]]] = {host: ["server"] for host in hosts}
    roles[scheduler].insert(0, "scheduler")
    orders = tuple(
        ToNode(host, StartGroup(generation=number, processes=tuple(PsProcess(role=role, environment=environment) for role in roles[host])))
        for host in hosts
    )
    return Group(environment, hosts, orders)


def plan_formation(
    generation: Generation,
    workers: Mapping[str, WorkerHello],
    holders: Collection[str],
    environment: dict[str, str],
    token: str,
    origin: Origin,
    checkpoint_dir: str | None,
    segment_steps: int | None,
) -> dict[str, Form]:
    """The order for each member: `holders` have the state in memory, the others fetch it from the generation's source."""
    source = workers[generation.source]
    return {
        instance: Form(
            generation=generation.number,
            number=number,
            workers=len(generation.members),
            environment=environment,
            position=generation.position,
            source=generation.source,
            source_host=source.private_ip,
            source_port=source.state_port,
            transfer_token=token,
            fetch=instance not in holders,
            receivers=len(set(generation.instances) - set(holders)),
            commit=origin.commit if instance == generation.source else None,
            safe=origin.safe if instance == generation.source else None,
            checkpoint_dir=checkpoint_dir,
            segment_steps=segment_steps,
        )
        for number, instance in enumerate(generation.instances)
    }


def disagreement(hello: WorkerHello, others: Iterable[WorkerHello]) -> str | None:
    """Why the worker cannot train with the others, or None."""
    for other in others:
        for name in AGREED:
            mine, theirs = getattr(hello, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {mine} here and {theirs} on {other.instance_id}: all workers must run the same script and arguments"
    return None


def segment_record(generation: int, start: Position, end: Position, said: Mapping[str, CheckIn]) -> Announce:
    """What the workers did between two boundaries, merged: samples added up, seconds of the slowest, metrics weighted by their counts."""
    totals: dict[str, tuple[float, float]] = {}
    for check_in in said.values():
        for name, (total, count) in check_in.metrics.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + count)
    fields: dict[str, Any] = {
        "generation": generation,
        "workers": len(said),
        "from": start.model_dump(),
        "to": end.model_dump(),
        "epoch": start.epoch,
        "samples": sum(check_in.samples for check_in in said.values()),
        "seconds": max(check_in.seconds for check_in in said.values()),
        "pids": {instance: check_in.pid for instance, check_in in said.items()},
        "metrics": {name: total / count for name, (total, count) in sorted(totals.items()) if count},
    }
    return Announce("segment", fields)


def slowest(phases: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The longest time that anybody took for each phase, in the order in which the phases were first named."""
    longest: dict[str, float] = {}
    for said in phases:
        for name, seconds in said.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    return longest


def report_members(generation: Generation | None, active: Collection[str], leaving: Collection[str]) -> tuple[JobMember, ...]:
    """All that train, are being formed, or have not left yet."""
    members = [
        JobMember(instance_id=m.instance_id, rank=rank, active=m.instance_id in active, joined_epoch=m.joined_epoch, joined_at=m.joined_at)
        for rank, m in enumerate(generation.members if generation else ())
    ]
    known = {member.instance_id for member in members}
    for instance in sorted(set(leaving) - known):
        members.append(JobMember(instance_id=instance, rank=len(members), active=True, joined_epoch=0, joined_at=0.0))
    return tuple(members)
