"""Undoes a generation: cancels it before a member began to form it, or restarts all its workers. Pure."""

from __future__ import annotations

from dataclasses import replace

from dyntrain.training import events, journal
from dyntrain.training.protocol.node_messages import RestartWorker
from dyntrain.training.session.job.round import Round
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, ToNode
from dyntrain.training.session.phases.ending import fail, stop_groups


def take_back(job: JobState, reason: str, now: float) -> list[Order]:
    """Cancel a generation that no member has begun to form.

    The state's holders keep their processes and wait for the next order; joiners stand by again.
    """
    generation, holders, roster = job.round.generation, job.round.holders, job.roster
    assert generation is not None
    failure = job.trouble.formation_failed(now)
    orders: list[Order] = [
        Announce(events.TakenBack(generation=job.number, reason=reason, at=now)),
        *stop_groups(job, job.number),
    ]
    members = roster.members
    roster.members = {instance: hello for instance, hello in members.items() if instance in holders}
    for instance, hello in members.items():
        if instance not in holders:
            roster.absent.pop(instance, None)
            roster.add_standing(hello)
    if roster.members:
        kept = tuple(member for member in generation.members if member.instance_id in roster.members)
        waits = job.round.waits | job.round.prepared
        job.round = replace(job.round.parked(roster.members, waits), generation=replace(generation, members=kept))
        job.enter(Phase.PARKED, now)
    else:
        job.round = Round(earlier_pace=job.round.pace)
        job.enter(Phase.WAITING, now)
    if failure:
        return [*orders, *fail(job, f"{failure}; the last: {reason}", now)]
    if job.phase is Phase.WAITING:
        orders.append(Journal(journal.TakenBack(generation=job.number, reason=reason, at=now)))
    return orders


def go_back(job: JobState, reason: str, now: float) -> list[Order]:
    """Restart from the last state that all members had in common, because their states differ."""
    if job.trouble.diverged():
        return fail(job, f"{reason}; this has happened too often", now)
    return restart(job, reason, now, void_copies=job.phase is Phase.FORMING)


def restart(job: JobState, reason: str, now: float, void_copies: bool = False) -> list[Order]:
    """End all members' processes, which may be stuck in ps-lite; the next generation starts from safe state or commit.

    With `void_copies`, the safe states kept in this generation are not used.
    """
    if void_copies:
        job.lineage = job.lineage.without(job.number)
    commit = job.commit[0] if job.commit else None
    orders: list[Order] = [
        Announce(events.Restart(generation=job.number, reason=reason, commit=commit, at=now)),
        Journal(journal.Restarted(generation=job.number, reason=reason, at=now, void_copies=void_copies)),
    ]
    if job.phase is Phase.FORMING:
        job.trouble.formation_failed(now)
    failure = job.trouble.restarted(now)
    killed = job.roster.dissolve()
    job.roster.replaced.update({instance: hello.pid for instance, hello in killed.items()})
    job.void_until, job.round = job.number, Round(earlier_pace=job.round.pace)
    job.enter(Phase.WAITING, now)
    for instance, hello in killed.items():
        orders.append(DropWorker(instance, hello.pid, reason))
        if instance in job.roster.nodes:
            orders.append(ToNode(instance, RestartWorker(pid=hello.pid, reason=reason)))
    orders += stop_groups(job, job.number)
    return orders + (fail(job, f"{failure}; the last: {reason}", now) if failure else [])
