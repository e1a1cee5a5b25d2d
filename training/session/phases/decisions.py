"""Decides when a generation starts, and how the job continues at a boundary or after the loss of a worker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dyntrain.training import events
from dyntrain.training.journal import MembersGivenUp
from dyntrain.training.protocol.messages import Position, StepVerdict
from dyntrain.training.protocol.slots import nodes_of
from dyntrain.training.session.generation.divergence import describe_difference
from dyntrain.training.session.generation.generation import SettlementReason, settle
from dyntrain.training.session.generation.merging import merge_check_ins
from dyntrain.training.session.generation.origin import Origin
from dyntrain.training.session.generation.ps_group import choose_scheduler
from dyntrain.training.session.generation.release import Release
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Journal, Order, ToWorker
from dyntrain.training.session.phases.ending import fail
from dyntrain.training.session.phases.formation import form, go_when_prepared, proceed
from dyntrain.training.session.phases.loops import bring_workers_to_loop, finish_loop, orders_between_loops
from dyntrain.training.session.phases.rollback import restart, revert_state
from dyntrain.training.session.phases.wanted import next_wanted_instances, server_nodes, wanted_instances

NEVER_JOINED_REASON = (
    "no worker joined: the script runs no epochs of ElasticJob.join(), or is of AWS Dynamic Training and needs "
    "--dt-scripts"
)


def advance(job: JobState, now: float) -> list[Order]:
    """Take the next decision, if everything needed for this decision is known and all members are connected.

    A member without a connection would miss the decision; soon the member connects again or is treated as lost.
    """
    members, survivor_release = job.roster.members, job.round.release
    if any(instance_id in members for instance_id in job.roster.absent):
        return []
    match job.phase:
        case Phase.WAITING:
            return _start_generation(job, now)
        case Phase.PARKED:
            return _leave_parked_phase(job, now)
        case Phase.PREPARING:
            return go_when_prepared(job, now)
        case Phase.TRAINING if job.round.checked_in and set(job.round.checked_in) >= set(members):
            return _decide_at_boundary(job, now)
        case Phase.RELEASING if survivor_release is not None and survivor_release.verdict is not None:
            return _finish_release(job, survivor_release, survivor_release.verdict, now)
    return []


def call_back_nodes(job: JobState) -> list[Order]:
    return [] if job.phase is Phase.OVER else job.roster.call_back_nodes(wanted_instances(job) or ())


def fail_if_refused(job: JobState, now: float) -> list[Order]:
    if (complaint := _complaint_of_every_node(job, job.roster.refused)) is None:
        return []
    instance, reason = complaint
    return fail(job, f"the job refuses the script on every node, and its output says why; on {instance}: {reason}", now)


def fail_if_unjoined(job: JobState, now: float) -> list[Order]:
    if (complaint := _complaint_of_every_node(job, job.roster.never_joined)) is None:
        return []
    instance_id, reason = complaint
    return fail(job, f"{NEVER_JOINED_REASON}; on {instance_id} {reason}", now)


def _complaint_of_every_node(job: JobState, complaints: Mapping[str, str]) -> tuple[str, str] | None:
    """Return one node and the reason why its worker cannot train, if `complaints` has a reason for every wanted node.

    Return None if a wanted node has no reason, or if a worker may still be able to train. If only one node's worker
    cannot train, the node's data may be the cause. If no node's worker can train, the script is the cause, and retries
    are useless.
    """
    roster = job.roster
    wanted_nodes = [instance_id for instance_id in (wanted_instances(job) or ()) if instance_id in roster.nodes]
    is_waiting = job.phase is Phase.WAITING and not roster.standing and (job.number > 0 or not roster.any_stood_by)
    if not is_waiting or len(wanted_nodes) < job.options.workers or not set(wanted_nodes) <= set(complaints):
        return None
    return wanted_nodes[0], complaints[wanted_nodes[0]]


def _start_generation(job: JobState, now: float) -> list[Order]:
    roster, options = job.roster, job.options
    listed_nodes = [instance_id for instance_id in (wanted_instances(job) or ()) if instance_id in roster.nodes]
    expected_nodes = [instance_id for instance_id in listed_nodes if roster.cooling_record(instance_id) is None]
    if listed_nodes and not expected_nodes and not roster.any_stood_by:
        failure_record = roster.cooling_record(listed_nodes[0])
        reason = failure_record.reason if failure_record else ""
        return fail(job, f"no worker could start, on any node; the last time on {listed_nodes[0]}: {reason}", now)
    missing_nodes = [instance for instance in expected_nodes if not roster.has_all_processes(instance, roster.standing)]
    has_enough_nodes = len(expected_nodes) >= (options.workers if job.number == 0 else options.limits.min_workers)
    if (missing_nodes or not has_enough_nodes) and now - job.since < options.clocks.patience:
        return []
    decision = settle((), roster.ready_nodes(), wanted_instances(job), options.limits, _group_is_ready(job, now))
    job.pause(None if decision.members else decision.reason, now)
    candidates = decision.members or [instance_id for instance_id in expected_nodes if instance_id not in missing_nodes]
    origin = job.choose_origin({instance: roster.standing[instance] for instance in roster.process_names(candidates)})
    if job.no_commit and not (
        origin.commit or origin.safe
    ):  # otherwise the job would silently start from the beginning
        return fail(job, f"no readable commit is left to go on from: {job.no_commit}", now)
    if not decision.members:
        return []
    if orders := bring_workers_to_loop(job, origin.loop):
        job.enter(Phase.WAITING, now)  # all workers, also that with the safe state, soon stand by again
        return orders
    job.trouble.record_safe_step(origin.position.step)
    return form(job, roster.process_names(decision.members), origin, (), now)


def _group_is_ready(job: JobState, now: float) -> bool:
    return choose_scheduler(server_nodes(job)) is not None and now >= job.trouble.until


def _decide_at_boundary(job: JobState, now: float) -> list[Order]:
    check_ins = job.round.checked_in
    positions = {check_in.position for check_in in check_ins.values()}
    if len(positions) > 1:
        return fail(job, f"workers stand at different positions: {sorted(p.step for p in positions)}", now)
    position = positions.pop()
    orders: list[Order] = []
    if position != job.position:
        orders.append(Announce(merge_check_ins(job.number, job.position, position, check_ins, now)))
        job.position = position
    if not job.roster.members:
        return [*orders, *restart(job, "every worker was lost at the boundary", now)]
    if description := describe_difference({instance: check_in.checks for instance, check_in in check_ins.items()}):
        return [*orders, *revert_state(job, f"workers differ in state at step {position.step}: {description}", now)]
    if position.epoch >= job.roster.epochs or any(check_in.stop for check_in in check_ins.values()):
        return [*orders, *finish_loop(job, job.members_present(), now)]
    present_members = job.members_present()
    all_present = len(present_members) == len(job.round.instances)
    if position.offset and all_present and not _may_change_in_mid_epoch(job):
        return orders + proceed(job)
    return orders + _adopt_wanted_members(job, present_members, position, all_present, now)


def _adopt_wanted_members(
    job: JobState, holding_members: Sequence[str], position: Position, intact: bool, now: float
) -> list[Order]:
    """Continue the training with the members that the target wants.

    The members in `holding_members` hold the state at `position`; the remaining members join again, in the same
    process. A node takes part with all its processes or not at all: the processes of an incomplete node leave and join
    again.
    """
    roster, group_ready = job.roster, _group_is_ready(job, now)
    ready_nodes = roster.ready_nodes(job.loop, besides=job.members_present())
    holders = [node for node in nodes_of(holding_members) if node in ready_nodes]
    if holding_members and not holders:
        return _wait_for_processes(job, nodes_of(holding_members), now)
    decision = settle(holders, ready_nodes, next_wanted_instances(job), job.options.limits, group_ready, intact)
    job.pause(None if decision.members else decision.reason, now)
    if decision.members is None:
        return []
    member_names = roster.process_names(decision.members)
    if intact and member_names == job.round.instances:
        return proceed(job)
    return form(job, member_names, Origin(position), holding_members, now)


def _wait_for_processes(job: JobState, nodes: Sequence[str], now: float) -> list[Order]:
    """Wait for missing processes, as each node that holds the state lacks one of its processes.

    Restart all workers if waiting takes too long, or if a node that holds the state cools down.
    """
    if any(job.roster.cooling_record(node) for node in nodes) or now - job.since > job.options.clocks.patience:
        return restart(job, f"processes on {', '.join(nodes)} are missing, and no other node has the state", now)
    return []


def _may_change_in_mid_epoch(job: JobState) -> bool:
    if job.options.boundary == "segment" or job.target is None:
        return True
    return any(instance_id in job.target.leave_by for instance_id in job.roster.members)


# ---- after a loss


def release_survivors(job: JobState, instance: str, reason: str, now: float) -> list[Order]:
    """Begin a release after a worker was lost while other workers train, or restart if a ps-lite server is lost too.

    In a release the surviving workers undo the incomplete step and continue in their processes.
    """
    nodes, members = job.roster.nodes, job.roster.members
    # A host whose supervisor is disconnected counts as alive as long as its worker is connected.
    lost_server_hosts = [host for host in job.round.group.hosts if host not in nodes and host not in members]
    if job.options.recovery == "restart" or lost_server_hosts or not members:
        return restart(job, f"worker on {instance} lost: {reason}", now)
    job.enter(Phase.RELEASING, now)
    script_stops = any(check_in.stop for check_in in job.round.checked_in.values())  # workers do not repeat check-ins
    job.round.release = _new_release(job, now, script_stops)
    return [
        Announce(events.Releasing(instance=instance, generation=job.number, reason=reason, at=now)),
        *record_lost_members(job, now),
        *job.round.release.ask_status(members),
    ]


def record_lost_members(job: JobState, now: float) -> list[Order]:
    """Write the lost members to the journal, so that a restarted coordinator does not accept the lost members again.

    The zeros that free the surviving workers also complete the step for a lost worker that is still alive.
    """
    lost_members = frozenset(job.round.instances) - set(job.roster.members)
    if lost_members == job.round.given_up:
        return []
    job.round.given_up = lost_members
    return [Journal(MembersGivenUp(generation=job.number, members=tuple(sorted(lost_members)), at=now))]


def _new_release(job: JobState, now: float, stops: bool) -> Release:
    return Release(job.number, len(job.round.instances), now, stops)


def release_to_stop(job: JobState, instance: str, now: float) -> list[Order]:
    """Begin a release because the script stops the job at a boundary after the order to proceed from there.

    A stop after the order to proceed can follow the loss of a worker in an epoch's last step: the next generation is
    then formed before the script runs its own lines at the end of the epoch. Members that have already begun the next
    step are freed from this step.
    """
    job.enter(Phase.RELEASING, now)
    job.round.release = _new_release(job, now, stops=True)
    reason = "the script stops the job"
    return [
        Announce(events.Releasing(instance=instance, generation=job.number, reason=reason, at=now)),
        *job.round.release.ask_status(job.roster.members),
    ]


def _finish_release(job: JobState, release: Release, position: Position, now: float) -> list[Order]:
    """Send the verdict (the last valid step) to the freed survivors, and take the next decision.

    If the script stops the job, finish the loop over epochs in place of the next decision.
    """
    verdict = StepVerdict(generation=release.generation, position=position, exchanges=release.finished_exchanges)
    orders: list[Order] = [ToWorker(instance_id, verdict) for instance_id in job.members_present()]
    release_seconds = now - release.began
    orders.append(Announce(events.Released(generation=job.number, position=position, seconds=release_seconds, at=now)))
    park(job, position, now, release.workers_behind)
    if not (release.stops and job.round.holders):
        return orders + advance(job, now)
    return orders + finish_loop(job, job.round.holders, now)


def park(job: JobState, position: Position, now: float, behind: Collection[str] = ()) -> None:
    holders = [instance_id for instance_id in job.roster.members if instance_id not in behind]
    job.position, job.round = position, job.round.parked_copy(holders, waits=job.round.checked_in)
    job.enter(Phase.PARKED, now)


def _leave_parked_phase(job: JobState, now: float) -> list[Order]:
    present_holders = [instance_id for instance_id in job.members_present() if instance_id in job.round.holders]
    if not present_holders:
        return restart(job, "every worker that held the state was lost", now)
    if job.between_loops:
        if (orders := orders_between_loops(job, now)) is not None:
            return orders
    elif job.position.epoch >= job.roster.epochs:
        return finish_loop(job, present_holders, now)
    return _adopt_wanted_members(job, present_holders, job.position, intact=False, now=now)


def fail_when_paused_for_too_long(job: JobState, now: float) -> list[Order]:
    """Fail the job if it has been paused for longer than `--pause-seconds`.

    A job that has not begun yet, and had no failure, may wait for its nodes for ever, as the nodes' preparation has its
    own time limits.
    """
    has_begun = job.number > 0 or any(record.failures for record in job.roster.records.values())
    may_wait = job.phase in (Phase.WAITING, Phase.PARKED, Phase.TRAINING)
    is_waiting = may_wait and job.paused in (SettlementReason.BELOW_MINIMUM, SettlementReason.NO_GROUP)
    if not (has_begun and is_waiting) or job.paused is None or now - job.paused_since < job.options.pause_seconds:
        return []
    return fail(job, f"{job.paused.value}, for {job.options.pause_seconds:.0f} s", now)
