"""Undoes a generation: cancels it before a member began to form it, or restarts all its workers. Pure."""

from __future__ import annotations

from dataclasses import replace

from dyntrain.training import events, journal
from dyntrain.training.protocol.node_messages import RestartWorker
from dyntrain.training.session.job.round import Round
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, ToNode
from dyntrain.training.session.phases.ending import fail, stop_groups


def cancel_generation(job: JobState, reason: str, now: float) -> list[Order]:
    """Cancel a generation before any member has begun to form the group of processes.

    Members that hold the state keep their processes and wait for the next order; joining workers stand by again.
    """
    generation, holders, roster = job.round.generation, job.round.holders, job.roster
    assert generation is not None
    give_up_reason = job.trouble.count_failed_formation(now)
    orders: list[Order] = [
        Announce(events.TakenBack(generation=job.number, reason=reason, at=now)),
        *stop_groups(job, job.number),
    ]
    members = roster.members
    roster.members = {instance_id: hello for instance_id, hello in members.items() if instance_id in holders}
    for instance_id, hello in members.items():
        if instance_id not in holders:
            roster.absent.pop(instance_id, None)
            roster.add_standing_worker(hello)
    if roster.members:
        kept_members = tuple(member for member in generation.members if member.instance_id in roster.members)
        waiting_members = job.round.waits | job.round.prepared
        job.round = replace(
            job.round.parked_copy(roster.members, waiting_members), generation=replace(generation, members=kept_members)
        )
        job.enter(Phase.PARKED, now)
    else:
        job.round = Round(earlier_pace=job.round.pace)
        job.enter(Phase.WAITING, now)
    if give_up_reason:
        return [*orders, *fail(job, f"{give_up_reason}; the last: {reason}", now)]
    if job.phase is Phase.WAITING:
        orders.append(Journal(journal.TakenBack(generation=job.number, reason=reason, at=now)))
    return orders


def revert_state(job: JobState, reason: str, now: float) -> list[Order]:
    """Restart from the last state that all members had in common, because the members' states differ."""
    if job.trouble.count_divergence():
        return fail(job, f"{reason}; this has happened too often", now)
    return restart(job, reason, now, void_copies=job.phase is Phase.FORMING)


def restart(job: JobState, reason: str, now: float, void_copies: bool = False) -> list[Order]:
    """Have all members' processes replaced, as the old processes may be stuck in ps-lite.

    The next generation starts from a safe state or a commit. With `void_copies`, safe states that were made in the
    present generation are not used.
    """
    if void_copies:
        job.lineage = job.lineage.without_generation(job.number)
    commit_position = job.commit[0] if job.commit else None
    orders: list[Order] = [
        Announce(events.Restart(generation=job.number, reason=reason, commit=commit_position, at=now)),
        Journal(journal.Restarted(generation=job.number, reason=reason, at=now, void_copies=void_copies)),
    ]
    if job.phase is Phase.FORMING:
        job.trouble.count_failed_formation(now)
    give_up_reason = job.trouble.count_restart(now)
    killed_workers = job.roster.remove_members()
    job.roster.replaced.update({instance_id: hello.pid for instance_id, hello in killed_workers.items()})
    job.void_until, job.round = job.number, Round(earlier_pace=job.round.pace)
    job.enter(Phase.WAITING, now)
    for instance_id, hello in killed_workers.items():
        orders.append(DropWorker(instance_id, hello.pid, reason))
        if instance_id in job.roster.nodes:
            orders.append(ToNode(instance_id, RestartWorker(pid=hello.pid, reason=reason)))
    orders += stop_groups(job, job.number)
    return orders + (fail(job, f"{give_up_reason}; the last: {reason}", now) if give_up_reason else [])
