"""Handles messages of the nodes: on themselves, their worker, and their ps-lite processes. Pure."""

from __future__ import annotations

from dyntrain.training import events
from dyntrain.training.protocol.node_messages import (
    FACE_WANTED,
    REFUSED,
    GroupFailed,
    GroupReady,
    Listed,
    NodeHello,
    NodeNotice,
    Retire,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.protocol.slots import node_of
from dyntrain.training.session.generation.ps_group import ConnectedNode
from dyntrain.training.session.handlers.workers import script_ended
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Order, ToNode
from dyntrain.training.session.phases.decisions import advance, call_back, joined_nowhere, refused_everywhere
from dyntrain.training.session.phases.ending import close_when_all_left, fail
from dyntrain.training.session.phases.formation import start_group_again
from dyntrain.training.session.phases.wanted import wanted
from dyntrain.training.session.recovery.from_journal import recover
from dyntrain.training.session.recovery.losses import group_lost, replace_worker, worker_lost


def connected(job: JobState, hello: NodeHello, now: float) -> list[Order]:
    instance, group = hello.name, job.round.group
    earlier_life = group.hosts.get(instance, hello.attempt) != hello.attempt
    if group.absent.pop(instance, None) is not None:
        job.roster.returned_at = now
    job.roster.addresses[instance] = hello.private_ip
    job.roster.lives_anew(instance, hello.life)
    job.roster.nodes[instance], job.roster.connected_at = ConnectedNode(hello), now
    orders: list[Order] = [
        ToNode(instance, Listed(listed=node_of(instance) in (wanted(job) or ()))),
        Announce(
            events.NodeReady(
                instance=instance, attempt=hello.attempt, address=hello.private_ip, base=hello.base, at=now
            )
        ),
    ]
    orders += job.roster.end_again(instance, hello.worker_pid)
    if job.phase is Phase.OVER:
        if hello.worker_pid is None:
            job.awaited.discard(instance)
        orders += [ToNode(instance, Retire(reason="job finished")), *close_when_all_left(job)]
    elif job.phase is Phase.RECOVERING:
        if hello.worker_pid != job.round.pids.get(instance) and instance not in job.roster.members:
            job.round.lost.add(instance)
        orders += recover(job, now)
    elif earlier_life:
        orders += group_lost(job, f"{instance} started again without its ps-lite processes", now)
    else:
        orders += start_group_again(job, instance)
    return orders + _worker_of(job, hello, now) + advance(job, now)


def _worker_of(job: JobState, hello: NodeHello, now: float) -> list[Order]:
    """Take over what the node's hello says about its worker, as an order to start one may have been lost."""
    if hello.worker_pid is None:
        job.roster.left.setdefault(hello.name, None)
        return call_back(job)
    job.roster.expect(hello.name, hello.worker_pid, job.options.clocks.start, now)
    return []


def worker_started(job: JobState, instance: str, message: WorkerStarted, now: float) -> list[Order]:
    """Note a started worker, whose time to connect begins: one that hangs before that would never send a message."""
    job.roster.expect(instance, message.pid, job.options.clocks.start, now, message.spare)
    return [Announce(events.WorkerStarted(instance=instance, pid=message.pid, spare=message.spare, at=now))]


def worker_exited(job: JobState, instance: str, message: WorkerExited, now: float) -> list[Order]:
    known = job.roster.pid(instance)
    # it has left, and said so itself; or its script ended in a way that prevents a message
    if message.code == 0 and job.phase is not Phase.OVER:
        if known != message.pid:
            return [] if known is not None else _ended_without_joining(job, instance, message.pid, now)
        if job.between:
            return script_ended(job, instance, now)
        return _ended_too_early(job, instance, message.pid, now) if instance in job.roster.members else []
    if known == message.pid:
        return worker_lost(job, instance, message.pid, message.reason, now)
    if job.phase is Phase.OVER:
        job.awaited.discard(instance)
        return close_when_all_left(job)
    if known is not None:
        return []
    if message.code in (REFUSED, FACE_WANTED):
        job.roster.refused[instance] = message.reason
        if over := refused_everywhere(job, now):
            return over
    orders = _died_before_it_came(job, instance, message, now)
    orders += replace_worker(job, instance, message.pid, message.reason, now)
    if job.phase is Phase.RECOVERING and message.pid == job.round.pids.get(instance):
        job.round.lost.add(instance)
    return orders + recover(job, now) + advance(job, now)


def _ended_too_early(job: JobState, instance: str, pid: int, now: float) -> list[Order]:
    """Handle a member whose script ended with exit code 0 before its last epoch.

    If all members do it again after the job went back, it is not an accident but how the script works: the job fails.
    """
    at, error = job.position, f"the script ends in epoch {job.position.epoch} of {job.roster.epochs}, of itself"
    orders: list[Order] = []
    if job.trouble.script_raised(instance, at.step, error, job.round.instances):
        orders = fail(job, f"{error}: on every worker, and so it did before", now)
    return orders or worker_lost(job, instance, pid, error, now)


def _ended_without_joining(job: JobState, instance: str, pid: int, now: float) -> list[Order]:
    """Handle a process that never connected and ended with exit code 0.

    Its script does not join the job, or was run with --help, so waiting for a connection would be in vain. A member
    from before a coordinator's restart is not treated so, as it may have trained.
    """
    away = job.roster.unconnected.get(instance)
    if away is None or away.pid != pid or away.stood_by or pid == job.round.pids.get(instance):
        return []
    reason = f"it ended after {now - away.since:.0f} s, with exit code 0"
    job.roster.never_joined[instance] = reason
    lost: list[Order] = [Announce(events.WorkerLost(instance=instance, pid=pid, reason=reason, at=now))]
    if over := joined_nowhere(job, now):
        return lost + over
    return [*lost, *replace_worker(job, instance, pid, reason, now), *advance(job, now)]


def _died_before_it_came(job: JobState, instance: str, message: WorkerExited, now: float) -> list[Order]:
    """Announce why a worker died before it connected, at its first try rather than when all tries are used up.

    Nothing is announced when a node that connects again repeats the message.
    """
    if job.roster.replaced.get(instance) == message.pid:
        return []
    return [Announce(events.WorkerLost(instance=instance, pid=message.pid, reason=message.reason, at=now))]


def group_ready(job: JobState, instance: str, message: GroupReady, now: float) -> list[Order]:
    if node := job.roster.nodes.get(instance):
        node.hello = node.hello.model_copy(update={"base": node.hello.base or message.base})
        node.group = message
    return advance(job, now)


def group_failed(job: JobState, instance: str, message: GroupFailed, now: float) -> list[Order]:
    if job.round.generation is None or message.generation != job.round.generation.number:
        return []
    if instance not in job.round.group.hosts:  # its processes are no longer needed
        return []
    return group_lost(job, f"ps-lite process on {instance}: {message.reason}", now) + advance(job, now)


def notice(job: JobState, instance: str, message: NodeNotice, now: float) -> list[Order]:
    """Announce an interruption notice, for people and programs.

    The controller gets it from the node too, and puts the deadline into the target.
    """
    job.roster.noticed.add(instance)
    return [Announce(events.NodeNotice(instance=instance, kind=message.kind, deadline=message.deadline, at=now))]
