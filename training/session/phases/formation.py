"""Forms a generation by an order to form and an order to go, until all members have joined the group. Pure.

After the order to form, members prepare (leave the old group, make their state ready) and wait. When all members are
prepared, the order to go makes them enter ps-lite together. If a member is lost before the order to go, the generation
is only cancelled (`rollback`). If a member is lost after the order to go, all members are restarted, as none can be
freed from ps-lite's barriers. When the order to go is given, all members' states are already saved as safe states.

Each function returns the orders of one decision, in the order in which they must be carried out.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import Go, Leave, Proceed
from dyntrain.training.protocol.slots import node_of, nodes_of
from dyntrain.training.session.generation.divergence import describe_difference
from dyntrain.training.session.generation.form_orders import members_with_copies, plan_formation
from dyntrain.training.session.generation.generation import Generation, Member, cause_of, describe_cause
from dyntrain.training.session.generation.merging import longest_durations
from dyntrain.training.session.generation.origin import Origin
from dyntrain.training.session.generation.ps_group import choose_scheduler, plan_group
from dyntrain.training.session.job.round import PsGroup, Round
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Journal, Order, ToWorker
from dyntrain.training.session.phases.ending import stop_groups
from dyntrain.training.session.phases.engine import engine_of, forget_rendezvous
from dyntrain.training.session.phases.rollback import revert_state
from dyntrain.training.session.phases.wanted import server_nodes, wanted_instances

NOT_WANTED, NODE_INCOMPLETE = "not in the target", "a process of its node is missing: all of them join again"


def form(job: JobState, members: tuple[str, ...], origin: Origin, holders: Collection[str], now: float) -> list[Order]:
    """Decide the next generation, and return the orders to form this generation.

    The members in `holders` have the state in memory; without holders, the state is in `origin`.
    """
    roster, previous_round = job.roster, job.round
    hosts = server_nodes(job, members)
    scheduler = choose_scheduler(hosts)
    assert scheduler is not None
    previous_members = (
        {member.instance_id: member for member in previous_round.generation.members}
        if previous_round.generation and holders
        else {}
    )
    position = origin.position
    job.number, job.position = job.number + 1, position
    job.lineage = job.lineage.add_generation(job.number, position)
    if origin.commit:
        job.began_from = (position, origin.commit)
    job_or_loop_begins, job.between_loops = job.number == 1 or job.between_loops, False
    if job.loop:
        job.loops[job.number] = job.loop
    remaining_holders = frozenset(holders) & frozenset(members)
    generation = Generation(
        number=job.number,
        members=tuple(
            previous_members.get(name) or Member(name, joined_epoch=position.epoch, joined_at=now) for name in members
        ),
        position=position,
        source=origin.source or next((name for name in members if name in remaining_holders), members[0]),
    )
    roster.leaving.update({name: hello for name, hello in roster.members.items() if name not in members})
    roster.members = {
        name: roster.members[name] if name in roster.members else roster.standing.pop(name) for name in members
    }
    summed_bytes = roster.members[generation.source].summed_bytes
    group = plan_group(engine_of(job), job.number, hosts, scheduler, members, summed_bytes)
    job.round = Round(
        generation=generation,
        holders=remaining_holders,
        waits=frozenset(previous_round.checked_in) or previous_round.waits,
        pids={name: hello.pid for name, hello in roster.members.items()},
        group=PsGroup({host: roster.nodes[host].hello.attempt for host in group.hosts}, group.orders),
        forms=plan_formation(
            generation,
            roster.members,
            remaining_holders or members_with_copies(generation, roster.members, origin, job.unreadable_copies),
            group.environment_of,
            job.transfer_token(),
            origin,
            job.options.checkpoint_dir,
            job.options.segment_steps,
            clear=job.options.state_transfer == "clear",
        ),
        active=previous_round.active & set(members),
        earlier_pace=previous_round.pace,
    )
    for host in group.hosts:
        roster.nodes[host].group = None
    job.enter(Phase.PREPARING, now)
    job.pause(None, now)

    target_instances = wanted_instances(job) or ()
    leave_messages = {
        instance: Leave(
            generation=job.number - 1, reason=NODE_INCOMPLETE if node_of(instance) in target_instances else NOT_WANTED
        )
        for instance in roster.leaving
    }
    return [
        *_record_settlement(job, generation, origin, set(previous_members), job_or_loop_begins, now),
        *group.orders,
        *(ToWorker(instance_id, message) for instance_id, message in leave_messages.items()),
        *(ToWorker(instance_id, order) for instance_id, order in job.round.forms.items()),
    ]


def _record_settlement(
    job: JobState,
    generation: Generation,
    origin: Origin,
    previous: Collection[str],
    job_or_loop_begins: bool,
    now: float,
) -> list[Order]:
    """Make the journal entries and the event that record a decided generation.

    `job_or_loop_begins` says whether the job or a loop over epochs begins with this generation.
    """
    source_worker = job.roster.members[generation.source]
    begin_entry = journal.JobBegun(
        job=job.options.job,
        epochs=source_worker.epochs,
        samples=source_worker.samples,
        drawn_from=source_worker.drawn_from,
        global_batch=source_worker.global_batch,
        seed=source_worker.seed,
        batching=source_worker.batching,
        layout=source_worker.layout,
        from_epoch=job.position.epoch if job.loop else 0,
        at=now,
    )
    earlier_terms = job.terms.get(job.loop)
    job_or_loop_begins = (
        job_or_loop_begins or earlier_terms is None or earlier_terms.epochs != begin_entry.epochs
    )  # a resumed job may train longer
    if job_or_loop_begins:
        job.record_terms(begin_entry)
    generation_entry = journal.GenerationSettled(
        number=job.number,
        members=generation.instances,
        position=job.position,
        commit=origin.commit,
        safe=origin.source,
        at=now,
        pids=dict(job.round.pids),
        holders=tuple(sorted(job.round.holders)),
        hosts=dict(job.round.group.hosts),
        loop=job.loop,
    )
    joiners = tuple(instance_id for instance_id in generation.instances if instance_id not in previous)
    leavers = tuple(sorted(job.roster.leaving))
    cause = cause_of(previous, job.round.holders, leavers, origin)
    forming_event = events.Forming(
        number=job.number,
        members=generation.instances,
        position=job.position,
        commit=origin.commit,
        safe=origin.source,
        cause=describe_cause(cause, nodes_of([*joiners, *leavers]), job.causes),
        joining=joiners,
        leaving=leavers,
        at=now,
    )
    orders: list[Order] = [Journal(begin_entry)] if job_or_loop_begins else []
    return [*orders, Journal(generation_entry), Announce(forming_event)]


def go_when_prepared(job: JobState, now: float) -> list[Order]:
    """Order all members to enter ps-lite together once all are prepared; after this order no member can be freed."""
    members = job.roster.members
    if job.phase is not Phase.PREPARING or not members or not job.round.prepared >= set(members):
        return []
    job.enter(Phase.FORMING, now)
    return [ToWorker(instance_id, Go(generation=job.number)) for instance_id in members]


def finish_formation(job: JobState, now: float) -> list[Order]:
    """Let the members train once all have joined the group with equal states.

    The members do not wait for workers that leave.
    """
    states, generation = job.round.formed, job.round.generation
    if job.phase is not Phase.FORMING or generation is None or set(states) < set(job.roster.members):
        return []
    digests = {state.digest for state in states.values()}
    if len(digests) > 1:
        digest_text = ", ".join(f"{name} {state.digest}" for name, state in states.items())
        description = describe_difference({name: state.checks for name, state in states.items()}) or digest_text
        return revert_state(job, f"workers differ in state after forming generation {job.number}: {description}", now)
    job.enter(Phase.TRAINING, now)
    job.round.progress_at = now
    forget_rendezvous(job)
    job.trouble.reset_formations()
    orders = proceed(job)
    orders += stop_groups(job, job.number - 1)
    formed_event = events.Formed(
        generation=job.number,
        members=generation.instances,
        digest=digests.pop(),
        phases=longest_durations(state.phases for state in states.values()),
        background=longest_durations(state.background for state in states.values()),
        at=now,
    )
    return [*orders, Announce(formed_event)]


def start_group_again(job: JobState, instance: str) -> list[Order]:
    """Send the order to start ps-lite processes again to a node that has connected again.

    If the first order was lost and not repeated, the workers would wait for ps-lite processes until the formation's
    time limit.
    """
    is_forming = job.phase in (Phase.PREPARING, Phase.FORMING)
    return [order for order in job.round.group.orders if order.instance_id == instance] if is_forming else []


def proceed(job: JobState) -> list[Order]:
    """Order all members to proceed from the boundary, and one member to write a commit.

    One member writes all commits of a generation, because this member deletes other members' commits.
    """
    job.round.proceed_position, job.round.checked_in = job.position, {}
    committer = job.members_present()[0]
    job.set_committer(committer, job.number)
    proceed_message = Proceed(generation=job.number, position=job.position)
    commit_message = proceed_message.model_copy(update={"commit": True, "keep": job.kept_commits})
    return [
        ToWorker(instance_id, commit_message if instance_id == committer else proceed_message)
        for instance_id in job.roster.members
    ]
