"""Handles nodes' messages about supervisors, workers and ps-lite processes. Pure."""

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
from dyntrain.training.session.handlers.workers import handle_script_ended
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Order, ToNode
from dyntrain.training.session.phases.decisions import advance, call_back_nodes, fail_if_refused, fail_if_unjoined
from dyntrain.training.session.phases.ending import close_when_all_left, fail
from dyntrain.training.session.phases.formation import start_group_again
from dyntrain.training.session.phases.wanted import wanted_instances
from dyntrain.training.session.recovery.from_journal import recover
from dyntrain.training.session.recovery.losses import group_lost, replace_worker, worker_lost


def handle_hello(job: JobState, hello: NodeHello, now: float) -> list[Order]:
    instance_id, ps_group = hello.name, job.round.group
    node_restarted = ps_group.hosts.get(instance_id, hello.attempt) != hello.attempt
    if ps_group.absent.pop(instance_id, None) is not None:
        job.roster.returned_at = now
    job.roster.addresses[instance_id] = hello.private_ip
    job.roster.record_supervisor(instance_id, hello.life)
    job.roster.nodes[instance_id], job.roster.connected_at = ConnectedNode(hello), now
    orders: list[Order] = [
        ToNode(instance_id, Listed(listed=node_of(instance_id) in (wanted_instances(job) or ()))),
        Announce(
            events.NodeReady(
                instance=instance_id, attempt=hello.attempt, address=hello.private_ip, base=hello.base, at=now
            )
        ),
    ]
    orders += job.roster.repeat_replacement(instance_id, hello.worker_pid)
    if job.phase is Phase.OVER:
        if hello.worker_pid is None:
            job.awaited.discard(instance_id)
        orders += [ToNode(instance_id, Retire(reason="job finished")), *close_when_all_left(job)]
    elif job.phase is Phase.RECOVERING:
        if hello.worker_pid != job.round.pids.get(instance_id) and instance_id not in job.roster.members:
            job.round.lost.add(instance_id)
        orders += recover(job, now)
    elif node_restarted:
        orders += group_lost(job, f"{instance_id} started again without its ps-lite processes", now)
    else:
        orders += start_group_again(job, instance_id)
    return orders + _record_worker(job, hello, now) + advance(job, now)


def _record_worker(job: JobState, hello: NodeHello, now: float) -> list[Order]:
    """Record the worker that the node's first message names.

    If the node's message names no worker, an order to start a worker may have been lost, so the order is repeated for a
    wanted node.
    """
    if hello.worker_pid is None:
        job.roster.left.setdefault(hello.name, None)
        return call_back_nodes(job)
    job.roster.expect_connection(hello.name, hello.worker_pid, job.options.clocks.start_limit, now)
    return []


def handle_worker_started(job: JobState, instance: str, message: WorkerStarted, now: float) -> list[Order]:
    """Record a started worker with a time limit to connect, as a worker that hangs at its start sends no message."""
    job.roster.expect_connection(instance, message.pid, job.options.clocks.start_limit, now, message.spare)
    return [Announce(events.WorkerStarted(instance=instance, pid=message.pid, spare=message.spare, at=now))]


def handle_worker_exited(job: JobState, instance: str, message: WorkerExited, now: float) -> list[Order]:
    known_pid = job.roster.pid_of(instance)
    # the worker has left, and reported it itself; or its script ended without a message
    if message.code == 0 and job.phase is not Phase.OVER:
        if known_pid != message.pid:
            return [] if known_pid is not None else _handle_unjoined_end(job, instance, message.pid, now)
        if job.between_loops:
            return handle_script_ended(job, instance, now)
        return _handle_early_end(job, instance, message.pid, now) if instance in job.roster.members else []
    if known_pid == message.pid:
        return worker_lost(job, instance, message.pid, message.reason, now)
    if job.phase is Phase.OVER:
        job.awaited.discard(instance)
        return close_when_all_left(job)
    if known_pid is not None:
        return []
    if message.code in (REFUSED, FACE_WANTED):
        job.roster.refused[instance] = message.reason
        if failure_orders := fail_if_refused(job, now):
            return failure_orders
    orders = _announce_early_death(job, instance, message, now)
    orders += replace_worker(job, instance, message.pid, message.reason, now)
    if job.phase is Phase.RECOVERING and message.pid == job.round.pids.get(instance):
        job.round.lost.add(instance)
    return orders + recover(job, now) + advance(job, now)


def _handle_early_end(job: JobState, instance: str, pid: int, now: float) -> list[Order]:
    """Handle a member whose script ended with exit code 0 before its last epoch.

    If the scripts of all members end too early a second time, after a restart, the script itself is the cause, and the
    job fails.
    """
    position, error = job.position, f"the script ends in epoch {job.position.epoch} of {job.roster.epochs}, by itself"
    orders: list[Order] = []
    if job.trouble.record_exception(instance, position.step, error, job.round.instances):
        orders = fail(job, f"{error}: on every worker, for the second time", now)
    return orders or worker_lost(job, instance, pid, error, now)


def _handle_unjoined_end(job: JobState, instance: str, pid: int, now: float) -> list[Order]:
    """Handle a worker process that ended with exit code 0 without ever connecting.

    A script that ends successfully without connecting does not join the job, or was run with --help, so no connection
    will follow. Workers that were members before a restart of the coordinator are not handled here, as they may have
    trained.
    """
    unconnected_entry = job.roster.unconnected.get(instance)
    if (
        unconnected_entry is None
        or unconnected_entry.pid != pid
        or unconnected_entry.stood_by
        or pid == job.round.pids.get(instance)
    ):
        return []
    reason = f"it ended after {now - unconnected_entry.since:.0f} s, with exit code 0"
    job.roster.never_joined[instance] = reason
    orders: list[Order] = [Announce(events.WorkerLost(instance=instance, pid=pid, reason=reason, at=now))]
    if failure_orders := fail_if_unjoined(job, now):
        return orders + failure_orders
    return [*orders, *replace_worker(job, instance, pid, reason, now), *advance(job, now)]


def _announce_early_death(job: JobState, instance: str, message: WorkerExited, now: float) -> list[Order]:
    """Announce why a worker process died before it connected, even if only one process has died so far.

    Nothing is announced if the node only repeats its message after a new connection.
    """
    if job.roster.replaced.get(instance) == message.pid:
        return []
    return [Announce(events.WorkerLost(instance=instance, pid=message.pid, reason=message.reason, at=now))]


def handle_group_ready(job: JobState, instance: str, message: GroupReady, now: float) -> list[Order]:
    if node := job.roster.nodes.get(instance):
        node.hello = node.hello.model_copy(update={"base": node.hello.base or message.base})
        node.group = message
    return advance(job, now)


def handle_group_failed(job: JobState, instance: str, message: GroupFailed, now: float) -> list[Order]:
    if job.round.generation is None or message.generation != job.round.generation.number:
        return []
    if instance not in job.round.group.hosts:  # the node's processes are no longer needed
        return []
    return group_lost(job, f"ps-lite process on {instance}: {message.reason}", now) + advance(job, now)


def handle_notice(job: JobState, instance: str, message: NodeNotice, now: float) -> list[Order]:
    """Announce that a node's machine will be interrupted.

    The node also sends the notice to the controller, which puts the deadline into the target.
    """
    job.roster.interrupted.add(instance)
    return [Announce(events.NodeNotice(instance=instance, kind=message.kind, deadline=message.deadline, at=now))]
