"""Detects and handles lost workers and nodes; a loss is known from a message or from an exceeded time limit. Pure.

The handling of a lost member depends on the generation's phase; see `_lose_members`.
"""

from __future__ import annotations

from dyntrain.training import events
from dyntrain.training.session.generation.generation import SettlementReason
from dyntrain.training.session.job.roster import UnconnectedWorker
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Order
from dyntrain.training.session.phases.decisions import (
    advance,
    fail_when_paused_for_too_long,
    record_lost_members,
    release_survivors,
)
from dyntrain.training.session.phases.ending import close_when_all_left
from dyntrain.training.session.phases.loops import late_members
from dyntrain.training.session.phases.rollback import cancel_generation, restart
from dyntrain.training.session.recovery.from_journal import recover
from dyntrain.training.session.recovery.waiting import find_late_members, preparation_limit

# ---- losses known from messages and connections


def node_lost(job: JobState, instance: str, now: float) -> list[Order]:
    """Handle the loss of the connection to a node's supervisor.

    The node's worker has a connection of its own, and may still train.
    """
    job.roster.nodes.pop(instance, None)
    orders: list[Order] = [Announce(events.NodeLost(instance=instance, at=now))]
    ps_group = job.round.group
    if instance in ps_group.hosts:
        ps_group.absent[instance] = now
        if job.phase is Phase.RELEASING and instance not in job.roster.members:
            orders += restart(job, f"{instance} was lost with its ps-lite server", now)
    return orders


def group_lost(job: JobState, reason: str, now: float) -> list[Order]:
    """Handle the loss of the generation's ps-lite processes.

    If no worker uses the ps-lite processes yet, no step is lost.
    """
    if job.phase is Phase.PREPARING:
        return cancel_generation(job, reason, now)
    return restart(job, reason, now) if job.phase in (Phase.FORMING, Phase.TRAINING, Phase.RELEASING) else []


def worker_disconnected(job: JobState, instance: str, pid: int, now: float) -> list[Order]:
    """Handle a worker's lost connection.

    Later the worker may connect again, or its supervisor may report that the process has ended.
    """
    roster = job.roster
    if pid != roster.pid_of(instance):
        return []
    if instance in roster.standing or instance in roster.passing:
        roster.standing.pop(instance, None)
        roster.passing.pop(instance, None)
        roster.unconnected[instance] = UnconnectedWorker(pid, now, now + job.options.clocks.patience, stood_by=True)
        return [Announce(events.WorkerLost(instance=instance, pid=pid, reason="connection closed", at=now))]
    if not (job.between_loops and instance in job.script_ended):  # a worker whose script ended sends no more messages
        roster.absent.setdefault(instance, now)
    return []


def worker_lost(job: JobState, instance: str, pid: int | None, reason: str, now: float) -> list[Order]:
    """Handle the loss of a worker; ignore a report about an earlier process (`pid`) of the worker."""
    roster = job.roster
    if pid is None or pid != roster.pid_of(instance):
        return []
    roster.absent.pop(instance, None)
    if roster.leaving.pop(instance, None):
        return [DropWorker(instance, pid, reason), *close_when_all_left(job)]
    if roster.standing.pop(instance, None) or roster.passing.pop(instance, None):
        loss_order = Announce(events.WorkerLost(instance=instance, pid=pid, reason=reason, at=now))
        return [DropWorker(instance, pid, reason), loss_order, *replace_worker(job, instance, pid, reason, now)]
    return _lose_members(job, [instance], reason, now)


def replace_worker(job: JobState, instance: str, pid: int, reason: str, now: float) -> list[Order]:
    return [] if job.phase is Phase.OVER else job.roster.replace_worker(instance, pid, reason, now)


def _lose_members(job: JobState, instances: list[str], reason: str, now: float) -> list[Order]:
    """Handle members that are lost at the same time, depending on the generation's phase."""
    roster, survivor_release = job.roster, job.round.release
    orders: list[Order] = []
    for instance_id in instances:
        roster.absent.pop(instance_id, None)
        pid = roster.members.pop(instance_id).pid
        orders.append(DropWorker(instance_id, pid, reason))
        orders.append(Announce(events.WorkerLost(instance=instance_id, pid=pid, reason=reason, at=now)))
        orders += replace_worker(job, instance_id, pid, reason, now)
    lost_names = ", ".join(instances)
    match job.phase:
        case Phase.TRAINING if not set(instances) <= set(job.round.checked_in):
            return orders + release_survivors(job, lost_names, reason, now)
        case Phase.RELEASING if survivor_release is not None and roster.members:
            orders += record_lost_members(job, now) + survivor_release.ask_after_loss(roster.members)
        case Phase.PREPARING:
            orders += cancel_generation(job, f"worker on {lost_names} lost: {reason}", now)
        case Phase.RELEASING | Phase.FORMING:
            orders += restart(job, f"worker on {lost_names} lost: {reason}", now)
        case Phase.RECOVERING:
            job.round.lost.update(instances)
            orders += recover(job, now)
        # members lost at a boundary had finished their last step: the next generation forms without them
        case _:
            pass
    return orders + advance(job, now)


# ---- losses known because a time limit has passed


def tick(job: JobState, now: float) -> list[Order]:
    """Check all time limits, and handle one limit that is exceeded.

    If several limits are exceeded, the next calls handle the others.
    """
    clocks, roster = job.options.clocks, job.roster
    if job.phase is Phase.RECOVERING:
        return recover(job, now)
    if name := roster.find_overdue_worker(clocks.reconnect_limit, clocks.patience, now):
        reason = f"no connection for {now - roster.absent[name]:.1f} s"
        return worker_lost(job, name, roster.pid_of(name), reason, now)
    if missed_connection := roster.find_missed_connection(now):
        return _handle_missed_connection(job, *missed_connection, now)
    ps_group = job.round.group
    absences = ps_group.absent.items()
    if overdue_hosts := [
        host for host, since in absences if roster.is_overdue(since, clocks.liveness, clocks.patience, now)
    ]:
        host_names, absent_seconds = ", ".join(overdue_hosts), now - ps_group.absent[overdue_hosts[0]]
        ps_group.absent = {}
        return group_lost(
            job, f"no connection to {host_names}, where ps-lite processes run, for {absent_seconds:.0f} s", now
        )
    waited_seconds = now - job.since
    match job.phase:
        case Phase.PREPARING if late_instances := find_late_members(job.round, roster.members, clocks, waited_seconds):
            allowed_seconds = preparation_limit(job.round, late_instances[0], clocks)
            return _lose_members(job, late_instances, f"not prepared to form within {allowed_seconds:.0f} s", now)
        case Phase.FORMING if waited_seconds > clocks.formation_limit:
            missing_names = ", ".join(sorted(set(roster.members) - set(job.round.formed)))
            limit_text = f"not formed within {clocks.formation_limit:.0f} s"
            return restart(job, f"generation {job.number} {limit_text}; waited for {missing_names}", now)
        case Phase.RELEASING if waited_seconds > clocks.release_limit:
            return restart(job, f"the survivors were not free within {clocks.release_limit:.0f} s", now)
        case Phase.PARKED if (
            job.between_loops and waited_seconds > clocks.boundary_limit and (late_instances := late_members(job))
        ):
            return _lose_members(
                job,
                late_instances,
                f"not at the next loop over epochs within {clocks.boundary_limit:.0f} s of the first",
                now,
            )
        case Phase.TRAINING:
            if orders := _handle_stuck_workers(job, now):
                return orders
        case Phase.OVER if job.awaited and waited_seconds > clocks.patience:
            job.awaited = set()
    if roster.leaving and waited_seconds > clocks.formation_limit:
        name = next(iter(roster.leaving))
        return worker_lost(job, name, roster.pid_of(name), f"did not leave within {clocks.formation_limit:.0f} s", now)
    return [
        *roster.readmit_nodes(now, job.paused is SettlementReason.BELOW_MINIMUM),
        *close_when_all_left(job),
        *fail_when_paused_for_too_long(job, now),
        *advance(job, now),
    ]


def _handle_missed_connection(job: JobState, instance: str, entry: UnconnectedWorker, now: float) -> list[Order]:
    job.roster.unconnected.pop(instance)
    waited_text = f"{now - entry.since:.0f} s"
    start_reason = (
        f"started, and not connected to the coordinator within {waited_text}: "
        "it hangs, or its script ends without joining; see its log"
    )
    reason = f"its connection closed, and it was not back within {waited_text}" if entry.stood_by else start_reason
    loss_order = Announce(events.WorkerLost(instance=instance, pid=entry.pid, reason=reason, at=now))
    return [loss_order, *replace_worker(job, instance, entry.pid, reason, now), *advance(job, now)]


def _handle_stuck_workers(job: JobState, now: float) -> list[Order]:
    """Handle workers that are alive but make no progress.

    Workers that keep other workers waiting at a boundary for too long are treated as lost. Without waiting workers at a
    boundary, an unknown worker blocks the job inside a step, and a release of the others begins.
    """
    clocks, check_ins = job.options.clocks, job.round.checked_in
    late_instances = sorted(set(job.roster.members) - set(check_ins))
    if check_ins and late_instances and now - job.since > clocks.boundary_limit:
        return _lose_members(
            job, late_instances, f"not at the boundary within {clocks.boundary_limit:.0f} s of the first", now
        )
    if late_instances and now - max(job.round.progress_at, job.since) > clocks.progress:
        return release_survivors(job, "unknown", f"nobody made progress for {clocks.progress:.0f} s", now)
    return []
