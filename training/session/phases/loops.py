"""Leads a job from one loop over epochs in its script to the next loop. Pure.

At the end of a loop the members leave their group and keep the state. Between two loops, the members' scripts run lines
of their own, which for example unfreeze layers or make a new trainer. Until all members have reached the next loop, or
the end of the script, the job has the phase PARKED. Workers that stand by and new workers, which have no state, skip
the finished loops and join in the next loop.

A state belongs to one loop, as the trainers of other loops cannot load the state. So if the remaining state belongs to
an earlier loop, the job returns to this loop, and processes in later loops are replaced.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import Leave, LoopOver, WorkerHello
from dyntrain.training.session.generation.agreement import find_disagreement
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, ToWorker
from dyntrain.training.session.phases.ending import fail, finish_job, stop_groups

TOO_FAR_REASON = "the job is in an earlier loop over epochs, and no process can return to a loop: start afresh"


def finish_loop(job: JobState, holders: Collection[str], now: float) -> list[Order]:
    """Finish the present loop over epochs, or the whole job after its last loop.

    Members that are not in `holders` have not applied the loop's last step.
    """
    members = job.roster.members
    members_behind = [instance_id for instance_id in members if instance_id not in holders]
    if not any(hello.another for hello in members.values()):
        return [*_dismiss_members(job, members_behind), *finish_job(job, now)]
    reached_position, job.loop, job.between_loops = job.position, job.loop + 1, True
    job.position, job.script_ended = reached_position.next_loop_start, set()
    job.starts[job.loop] = job.position
    remaining_holders = [instance_id for instance_id in job.members_present() if instance_id in holders]
    job.writer = next(iter(remaining_holders), None)
    finish_entry = journal.LoopFinished(
        loop=job.loop, reached=reached_position, holders=tuple(remaining_holders), writer=job.writer, at=now
    )
    orders: list[Order] = [
        Journal(finish_entry),
        Announce(events.LoopFinished(loop=job.loop, position=reached_position, at=now)),
    ]
    job.round = job.round.parked_copy(remaining_holders, waits=remaining_holders)
    job.enter(Phase.PARKED, now)
    job.pause(None, now)
    orders += [loop_over_order(job, instance_id) for instance_id in remaining_holders]
    for instance_id in members_behind:
        orders += skip_loop(job, members.pop(instance_id))
    for hello in list(job.roster.standing.values()):
        orders += skip_loop(job, hello)
    return [*orders, *stop_groups(job, job.number)]


def loop_over_order(job: JobState, instance: str) -> Order:
    """Make the order that tells a member with the state that the loop over epochs has ended."""
    is_writer = instance == job.writer
    order = LoopOver(generation=job.number, loop=job.loop, position=job.position, holds=True, writes=is_writer)
    return ToWorker(instance, order)


def skip_loop(job: JobState, hello: WorkerHello) -> list[Order]:
    """Order a worker that has no state, and is in an earlier loop over epochs, to skip this loop.

    The worker sends a message from the next loop, which may also be over.
    """
    instance_id = hello.name
    job.roster.standing.pop(instance_id, None)
    job.roster.passing[instance_id] = hello
    next_loop = hello.loop + 1
    order = LoopOver(generation=job.number, loop=next_loop, position=job.starts[next_loop], holds=False)
    return [ToWorker(instance_id, order)]


def bring_workers_to_loop(job: JobState, loop: int) -> list[Order]:
    """Bring all workers that stand by to the loop over epochs of the remaining state; no worker has a state in memory.

    Returns no orders if all workers are already in this loop.
    """
    job.loop, job.between_loops = loop, False
    orders: list[Order] = []
    for instance_id, hello in list(job.roster.standing.items()):
        if hello.loop < loop:
            orders += skip_loop(job, hello)
        elif hello.loop > loop:
            job.roster.standing.pop(instance_id)
            orders += replace_process(job, hello, TOO_FAR_REASON)
    return orders


def replace_process(job: JobState, hello: WorkerHello, reason: str) -> list[Order]:
    """Have a worker's process replaced at once, without counting it as a failure of its node."""
    job.roster.replaced[hello.name] = hello.pid
    restart_orders = [] if job.phase is Phase.OVER else job.roster.repeat_replacement(hello.name, hello.pid, reason)
    return [DropWorker(hello.name, hello.pid, reason), *restart_orders]


def orders_between_loops(job: JobState, now: float) -> list[Order] | None:
    """Return the orders due between two loops over epochs, or None once all members have reached the next loop."""
    members = job.roster.members
    ended_members = job.script_ended & set(members)
    entered_members = {instance_id for instance_id, hello in members.items() if hello.loop == job.loop}
    if ended_members and entered_members:
        return fail(
            job,
            f"the script ended on {', '.join(sorted(ended_members))} and goes on to another loop over epochs on "
            f"{', '.join(sorted(entered_members))}: all workers must go through the same loops",
            now,
        )
    if ended_members == set(members):
        return finish_job(job, now)
    if entered_members != set(members):
        return []
    first_worker, *other_workers = members.values()
    conflict = find_disagreement(first_worker, other_workers)
    return fail(job, conflict, now) if conflict else None


def late_members(job: JobState) -> list[str]:
    """Return the members that keep other members waiting at the start of the next loop over epochs.

    As long as no member has reached the next loop, none is late, as the scripts may be at their final work.
    """
    members = job.roster.members
    entered_members = {instance_id for instance_id, hello in members.items() if hello.loop == job.loop}
    return sorted(set(members) - entered_members - job.script_ended) if entered_members else []


def _dismiss_members(job: JobState, behind: Collection[str]) -> list[Order]:
    leave_message = Leave(generation=job.number, reason="the job ends with a step that this worker has not applied")
    for instance_id in behind:
        job.roster.leaving[instance_id] = job.roster.members.pop(instance_id)
    return [ToWorker(instance_id, leave_message) for instance_id in behind]
