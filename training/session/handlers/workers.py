"""Handles workers that connect: returning members, new workers, and workers that are no longer needed. Pure."""

from __future__ import annotations

from dyntrain.training import events
from dyntrain.training.protocol.messages import Entered, Leave, LoopTerms, StepVerdict, WorkerHello
from dyntrain.training.protocol.slots import node_of
from dyntrain.training.session.generation.agreement import find_disagreement
from dyntrain.training.session.job.roster import UnconnectedWorker
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Order, ToWorker
from dyntrain.training.session.phases.decisions import advance, call_back_nodes, fail_if_refused
from dyntrain.training.session.phases.ending import close_when_all_left
from dyntrain.training.session.phases.loops import TOO_FAR_REASON, loop_over_order, replace_process, skip_loop
from dyntrain.training.session.phases.wanted import wanted_instances
from dyntrain.training.session.recovery.from_journal import accept_returned_member, recover
from dyntrain.training.session.recovery.losses import worker_lost


def handle_hello(job: JobState, hello: WorkerHello, now: float) -> list[Order]:
    instance, roster = hello.name, job.roster
    orders: list[Order] = []
    if hello.pid != roster.pid_of(instance):
        # No DropWorker: the earlier connection is closed already, and the new one must stay open.
        loss_orders = worker_lost(job, instance, roster.pid_of(instance), "another worker of the node connected", now)
        orders += [order for order in loss_orders if not isinstance(order, DropWorker) or order.instance_id != instance]
    unconnected_entry = roster.record_connection(instance, now)
    if job.phase is Phase.RECOVERING and accept_returned_member(job, hello):
        return orders + recover(job, now)
    if instance in roster.leaving:
        return [*orders, _leave_order(job, instance)]
    if instance in roster.members:
        return orders + _repeat_orders(job, hello, now)
    return orders + _handle_newcomer(job, hello, unconnected_entry, now) + recover(job, now)


def _repeat_orders(job: JobState, hello: WorkerHello, now: float) -> list[Order]:
    """Repeat the orders that a returning member may have missed; the member itself repeats its unanswered messages."""
    instance, survivor_release = hello.name, job.round.release
    if hello.loop == job.loop != job.roster.members[instance].loop:
        return _enter_loop(job, hello, now)
    job.roster.members[instance] = hello
    orders: list[Order] = []
    if job.phase in (Phase.PARKED, Phase.PREPARING) and hello.stage == "aborted":
        orders.append(ToWorker(instance, StepVerdict(generation=hello.generation or 0, position=job.position)))
    if job.between_loops and job.phase is Phase.PARKED and hello.loop < job.loop and instance not in job.script_ended:
        orders.append(loop_over_order(job, instance))
    if job.phase is Phase.PREPARING and hello.generation != job.number:
        orders.append(ToWorker(instance, job.round.forms[instance]))
    if job.phase is Phase.RELEASING and survivor_release and survivor_release.verdict is None:
        orders += survivor_release.ask_status(job.roster.members)
    return orders + advance(job, now)


def _handle_newcomer(job: JobState, hello: WorkerHello, entry: UnconnectedWorker | None, now: float) -> list[Order]:
    """Handle a connecting worker that is not a member of the present generation, or no longer a member.

    A worker that may be inside a dissolved group is replaced by a new process; any other worker gets an order.
    """
    instance_id = hello.name
    if job.phase is not Phase.OVER and job.roster.replaced.get(instance_id) == hello.pid:
        return _refuse(job, hello, "it was given up, and its node has been told to end it")
    if hello.stage in ("creates", "formed", "trains", "aborted") or (hello.generation or 0) > job.number:
        reason = f"generation {hello.generation} goes on without this worker, or is over; start afresh"
        return _refuse(job, hello, reason)
    if hello.passed > hello.loop and job.phase is not Phase.OVER:
        if hello.passed > job.loop:
            return _refuse(job, hello, TOO_FAR_REASON)
        job.roster.passing[instance_id] = hello
        return []
    is_wanted = node_of(instance_id) in (wanted_instances(job) or ())
    if job.phase is Phase.OVER or (hello.stage in ("waits", "free") and not is_wanted):
        job.awaited.discard(instance_id)
        job.roster.leaving[instance_id] = hello
        return [_leave_order(job, instance_id)]
    if hello.loop != job.loop and job.phase is not Phase.WAITING:
        return skip_loop(job, hello) if hello.loop < job.loop else _refuse(job, hello, TOO_FAR_REASON)
    if refusal_reason := (conflict := job.roster.conflict_of(hello)) or job.changed_terms(hello):
        refusal_order = Announce(events.WorkerRefused(instance=instance_id, reason=refusal_reason, at=now))
        orders: list[Order] = [DropWorker(instance_id, hello.pid, refusal_reason), refusal_order]
        if conflict:
            return orders
        job.roster.refused[instance_id] = refusal_reason
        return [*orders, *fail_if_refused(job, now)]
    job.roster.add_standing_worker(hello)
    seconds, spare = (now - entry.since, entry.spare) if entry and entry.pid == hello.pid else (None, None)
    ready_event = events.WorkerReady(instance=instance_id, pid=hello.pid, seconds=seconds, spare=spare, at=now)
    return [Announce(ready_event), *advance(job, now)]


def _leave_order(job: JobState, instance: str) -> Order:
    """Make the order to leave the job.

    The order's `finished` is set only after the job's end, as even the last steps of a worker that has reached the last
    sample may be undone.
    """
    generation = job.number if job.outcome == "finished" else 0
    reason = f"job {job.outcome}" if job.outcome else "not in the target"
    is_finished = job.outcome == "finished"
    is_writer = is_finished and instance == job.writer
    return ToWorker(instance, Leave(generation=generation, reason=reason, finished=is_finished, writes=is_writer))


def _refuse(job: JobState, hello: WorkerHello, reason: str) -> list[Order]:
    job.awaited.discard(hello.name)
    return replace_process(job, hello, reason)


def handle_entered(job: JobState, instance: str, message: Entered, now: float) -> list[Order]:
    """Handle the message that a worker's script has reached the next loop over epochs.

    A repeated message is ignored.
    """
    roster, terms = job.roster, {name: getattr(message, name) for name in LoopTerms.model_fields}
    if job.phase is Phase.OVER:
        return [_leave_order(job, instance)]
    passing_hello = roster.passing.get(instance)
    if passing_hello is not None and message.loop <= passing_hello.loop:
        return []  # a repetition from before the order to skip this loop, which the worker has left by now
    roster.passing.pop(instance, None)
    if passing_hello is not None and instance not in roster.members:
        fresh_fields = {"stage": "stands", "generation": None, "position": None}
        return _handle_newcomer(job, passing_hello.model_copy(update={**terms, **fresh_fields}), None, now)
    member = roster.members.get(instance)
    if member is None or member.loop == message.loop or not job.between_loops:
        return []
    return _enter_loop(job, member.model_copy(update=terms), now)


def _enter_loop(job: JobState, hello: WorkerHello, now: float) -> list[Order]:
    """Record that a member, which has the state, has reached the next loop over epochs.

    Workers that stand by with settings unlike the member's are refused.
    """
    instance_id, roster = hello.name, job.roster
    if all(other_worker.loop != job.loop for other_worker in roster.members.values()):
        job.since = now  # from now on, the members in the loop wait for the others
    if refusal_reason := find_disagreement(
        hello, [other_worker for other_worker in roster.members.values() if other_worker.loop == hello.loop]
    ):
        refusal_order = Announce(events.WorkerRefused(instance=instance_id, reason=refusal_reason, at=now))
        return [refusal_order, *worker_lost(job, instance_id, hello.pid, refusal_reason, now)]
    roster.members[instance_id] = hello
    orders: list[Order] = []
    for other_worker in [worker for worker in roster.standing.values() if worker.loop == hello.loop]:
        if refusal_reason := find_disagreement(other_worker, [hello]):
            del roster.standing[other_worker.name]
            orders.append(DropWorker(other_worker.name, other_worker.pid, refusal_reason))
            orders.append(Announce(events.WorkerRefused(instance=other_worker.name, reason=refusal_reason, at=now)))
    return orders + advance(job, now)


def handle_script_ended(job: JobState, instance: str, now: float) -> list[Order]:
    """Handle the end of a worker's script, without an error and without a further loop over epochs."""
    if instance in job.roster.members and job.between_loops:
        job.script_ended.add(instance)
        job.roster.absent.pop(instance, None)
        return advance(job, now)
    if instance in job.roster.passing and job.between_loops:
        return []  # the holders' scripts may end too; then the job's end orders this worker to leave
    if instance in job.roster.passing and job.phase is not Phase.OVER:
        hello = job.roster.passing.pop(instance)
        return _refuse(job, hello, "its script has ended, but other workers' scripts go on to another loop over epochs")
    return [_leave_order(job, instance)] if job.phase is Phase.OVER else []


def handle_worker_left(job: JobState, instance: str, now: float) -> list[Order]:
    if not (hello := job.roster.leaving.pop(instance, None)):
        return []
    job.roster.absent.pop(instance, None)
    job.roster.left[instance] = hello.pid
    left_event = events.Left(instance=instance, pid=hello.pid, generation=job.number, at=now)
    return [Announce(left_event), *call_back_nodes(job), *close_when_all_left(job)]
