"""Restores a restarted coordinator's knowledge of the job from its journal and the members' reports. Pure.

The journal contains the generation that was decided last; the members of this generation report their positions when
they connect. No decision is made until each member is connected or known to be lost, and the nodes that run the
generation's ps-lite processes are connected. The wait ends once no process has connected for `Clocks.patience` seconds:
hundreds of processes connect one after another, so the wait has no fixed length. The wait also ends after
`Clocks.progress` seconds, so that a process that connects repeatedly does not block the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import Go, Proceed, StepVerdict, WorkerHello
from dyntrain.training.protocol.slots import node_of
from dyntrain.training.session.generation.generation import Generation, Member
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.roster import Roster
from dyntrain.training.session.job.round import PsGroup, Round
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Order, ToWorker
from dyntrain.training.session.phases.decisions import advance, park, release_survivors
from dyntrain.training.session.phases.engine import forget_rendezvous
from dyntrain.training.session.phases.formation import finish_formation
from dyntrain.training.session.phases.loops import loop_over_order, replace_process, skip_loop
from dyntrain.training.session.phases.rollback import cancel_generation, restart
from dyntrain.training.session.phases.wanted import wanted_instances

TRAINED_STAGES = frozenset(
    {"trains", "waits", "aborted", "free"}
)  # stages after the generation's first order to proceed
INSIDE_STAGES = frozenset({"creates", "formed"})  # stages between the orders to go and to proceed
NOT_BACK_REASON = "it did not come back to the coordinator"


def restore_job(
    options: Options, transfer_token: Callable[[], str], entries: Sequence[journal.Entry], now: float
) -> JobState:
    """Restore the job from its journal, or begin a new job if the journal is empty."""
    job = JobState(options, transfer_token, Roster(options.budget), since=now)
    worker_names: set[str] = set()
    for entry in entries:
        match entry:
            case journal.GenerationSettled():
                job.round, worker_names = _round_of(entry), set(entry.pids)
                job.number, job.position = entry.number, entry.position
                job.lineage = job.lineage.add_generation(job.number, job.position)
                job.loop, job.between_loops = entry.loop, False
                if entry.loop:
                    job.loops[entry.number] = entry.loop
                job.set_committer(entry.members[0], entry.number)
                if entry.commit:
                    job.began_from = (entry.position, entry.commit)
            case journal.CommitWritten():
                job.record_commit(entry.position, entry.name, entry.generation)
            case journal.CommitFoundUnreadable():
                job.drop_commit(entry.reason)
            case journal.Restarted():
                job.round, job.void_until = Round(), entry.generation
                if entry.void_copies:
                    job.lineage = job.lineage.without_generation(entry.generation)
            case journal.MembersGivenUp():
                job.round.given_up = frozenset(entry.members)
            case journal.TakenBack():  # no worker held the state, so none is awaited
                job.round = Round()
            case journal.LoopFinished():
                job.loop, job.between_loops, job.writer = entry.loop, True, entry.writer
                job.position = job.starts[entry.loop] = entry.reached.next_loop_start
                job.round.holders = frozenset(entry.holders)
            case journal.JobFinished():
                job.outcome, job.position, job.writer = "finished", entry.position, entry.writer
            case journal.JobFailed():
                job.outcome, job.failure = "failed", entry.reason
            case journal.JobResumed():
                job.round, job.void_until, job.outcome, job.failure = Round(), job.number, "", ""
            case journal.JobBegun():
                job.record_terms(entry)
            case journal.JobLaunched():
                job.launch = entry.launch
            case journal.TermBegun() | journal.JobClosed():
                pass
            case _:
                assert_never(entry)
    if job.outcome:
        job.phase, job.round, job.awaited = Phase.OVER, Round(), worker_names
    elif job.round.generation is not None:
        job.phase = Phase.RECOVERING
        job.round.lost.update(job.round.given_up)
        job.roster.replaced = {instance_id: job.round.pids[instance_id] for instance_id in job.round.given_up}
    return job


def _round_of(settled: journal.GenerationSettled) -> Round:
    position, holders = settled.position, frozenset(settled.holders)
    members = tuple(Member(name, joined_epoch=position.epoch, joined_at=settled.at) for name in settled.members)
    source_name = next((name for name in settled.members if name in holders), settled.members[0])
    generation = Generation(settled.number, members, position, source_name)
    return Round(generation=generation, holders=holders, pids=settled.pids, group=PsGroup(settled.hosts))


def accept_returned_member(job: JobState, hello: WorkerHello) -> bool:
    """Accept a connecting worker that is a member of the journaled generation; return whether it was accepted.

    A member that was given up as lost is not accepted. If another process connects in a member's place, the member is
    lost.
    """
    instance_id = hello.name
    if instance_id not in job.round.instances or instance_id in job.round.lost:
        return False
    if hello.pid != job.round.pids[instance_id]:
        job.round.lost.add(instance_id)
        return False
    job.roster.absent.pop(instance_id, None)
    job.roster.members[instance_id] = hello
    return True


def recover(job: JobState, now: float) -> list[Order]:
    """Continue the job once all remaining processes have connected again, or the time to wait has passed."""
    if job.phase is not Phase.RECOVERING:
        return []
    members, nodes = job.roster.members, job.roster.nodes
    if any(hello.generation == job.number and hello.stage in TRAINED_STAGES for hello in members.values()):
        forget_rendezvous(job)
    missing_members = set(job.round.instances) - set(members) - job.round.lost
    if (
        not members
        and job.target is not None
        and not set(map(node_of, missing_members)) & set(wanted_instances(job) or ())
    ):
        missing_members = set()  # all wanted members are lost, so the group is broken, and no other member is awaited
    hosts_missing = members and any(host not in nodes for host in job.round.group.hosts)
    is_incomplete = missing_members or hosts_missing or set(job.roster.absent) & set(members)
    clocks, last_connected = job.options.clocks, max(job.since, job.roster.connected_at)
    if is_incomplete and now - last_connected <= clocks.patience and now - job.since <= clocks.progress:
        return []
    lost_members = sorted(set(job.round.instances) - set(members))
    silent_members = set(lost_members) - job.round.lost  # these may be alive
    stages = {instance_id: hello.stage for instance_id, hello in members.items()}
    orders: list[Order] = [
        Announce(events.Recovered(generation=job.number, stages=stages, lost=tuple(lost_members), at=now))
    ]
    for instance_id in sorted(silent_members):
        orders += job.roster.replace_worker(instance_id, job.round.pids[instance_id], NOT_BACK_REASON, now)
    orders += _continue_from_stages(job, lost_members, now)
    job.round.group.absent = {host: now for host in job.round.group.hosts if host not in nodes}
    return orders + advance(job, now)


def _continue_from_stages(job: JobState, lost: list[str], now: float) -> list[Order]:
    members, nodes = job.roster.members, job.roster.nodes
    if job.between_loops:
        return _resume_between_loops(job, now)
    if not members:
        return restart(job, "no member came back to the coordinator", now)
    current_stages = {hello.stage for hello in members.values() if hello.generation == job.number}
    members_behind = [name for name, hello in members.items() if hello.generation != job.number]
    lost_hosts = [
        host
        for host, attempt in job.round.group.hosts.items()
        if host not in nodes or nodes[host].hello.attempt != attempt
    ]
    if current_stages & TRAINED_STAGES:
        if lost_hosts:
            return restart(job, f"{', '.join(lost_hosts)}, where ps-lite processes ran, did not come back", now)
        if "free" in current_stages:
            return _repeat_verdict(job, now)
        if lost or "aborted" in current_stages:
            lost_names = ", ".join(lost) or "a worker"
            return release_survivors(job, lost_names, NOT_BACK_REASON, now)
        return _resume_training(job, now)
    if current_stages & INSIDE_STAGES:
        if missing_members := lost or members_behind or lost_hosts:
            return restart(job, f"{', '.join(missing_members)} was lost while generation {job.number} was formed", now)
        job.enter(Phase.FORMING, now)
        preparing_members = [instance_id for instance_id, hello in members.items() if hello.stage == "prepares"]
        go_message = Go(generation=job.number)
        return [*(ToWorker(instance_id, go_message) for instance_id in preparing_members), *finish_formation(job, now)]
    if lost or members_behind or lost_hosts:
        return _cancel_last_generation(
            job, f"the coordinator restarted while generation {job.number} was prepared", now
        )
    job.enter(Phase.PREPARING, now)
    return []


def _resume_between_loops(job: JobState, now: float) -> list[Order]:
    """Resume a job between two loops over epochs; some members may not know yet that the earlier loop is over."""
    members, holders = job.roster.members, job.round.holders
    stateless_workers = [members.pop(instance_id) for instance_id in list(members) if instance_id not in holders]
    for hello in stateless_workers:
        if hello.loop == job.loop:
            job.roster.add_standing_worker(hello)
    if not members:
        return restart(job, "no member came back to the coordinator", now)
    position = job.position
    park(job, position, now)
    orders: list[Order] = []
    for hello in stateless_workers:
        if hello.stage == "aborted":  # the worker may be stuck inside the group
            orders += replace_process(
                job, hello, "it lacks the last step of a loop over epochs, and may be inside the loop's group"
            )
        elif hello.loop < job.loop:
            orders += skip_loop(job, hello)
    for instance_id, hello in members.items():
        if hello.stage == "aborted":
            verdict = StepVerdict(generation=hello.generation or 0, position=position)
            orders.append(ToWorker(instance_id, verdict))
        if hello.loop < job.loop:
            orders.append(loop_over_order(job, instance_id))
    return orders


def _resume_training(job: JobState, now: float) -> list[Order]:
    """Resume a generation whose members train, wait at a boundary, or have missed the order to proceed."""
    current_round, members = job.round, job.roster.members
    assert current_round.generation is not None
    positions = [hello.position for hello in members.values() if hello.position is not None]
    job.position = current_round.proceed_position = max(positions, key=lambda position: position.step)
    job.enter(Phase.TRAINING, now)
    current_round.progress_at, current_round.active = now, set(members)
    resume_positions = {
        name: current_round.generation.position for name, hello in members.items() if hello.stage == "formed"
    }
    resume_positions |= {
        name: job.position for name, check_in in current_round.checked_in.items() if check_in.position == job.position
    }
    current_round.checked_in = {
        name: check_in for name, check_in in current_round.checked_in.items() if name not in resume_positions
    }
    return [
        ToWorker(name, Proceed(generation=job.number, position=position)) for name, position in resume_positions.items()
    ]


def _repeat_verdict(job: JobState, now: float) -> list[Order]:
    """Repeat the verdict after a loss (the last valid step), which the former coordinator had sent to some members.

    Some members have left the broken group after the verdict, so all members may leave the group.
    """
    members = job.roster.members
    free_positions = [
        hello.position for hello in members.values() if hello.stage == "free" and hello.position is not None
    ]
    verdict = StepVerdict(generation=job.number, position=free_positions[0])
    park(job, free_positions[0], now)
    return [ToWorker(instance_id, verdict) for instance_id in members]


def _cancel_last_generation(job: JobState, reason: str, now: float) -> list[Order]:
    """Cancel the last decided generation, which no member has begun to form.

    Members that had been ordered to abort their step do not know the verdict (the last valid step) yet, so the verdict
    is sent to these members.
    """
    verdict_orders = [
        ToWorker(instance_id, StepVerdict(generation=hello.generation or 0, position=job.position))
        for instance_id, hello in job.roster.members.items()
        if hello.stage == "aborted"
    ]
    return [*verdict_orders, *cancel_generation(job, reason, now)]
