"""Reports workers that keep other workers waiting (a stall), long before the late workers are treated as lost. Pure.

Workers inside a step send no messages, so the coordinator asks whether they wait for the summed gradients. A worker
that waits for the summed gradients has done its part; a worker that still runs its script keeps other workers waiting.
At boundaries and while a generation forms, workers send messages, so the coordinator knows which workers are late. Each
stall is announced twice, at its beginning and at its end. The time limits after which a worker is lost are in
`recovery.losses`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dyntrain.training import events
from dyntrain.training.protocol.messages import Where
from dyntrain.training.session.job.stall import Stall
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Order, ToWorker

STALL_SECONDS = 30.0  # duration of waiting after which a stall is announced
ASK_AFTER_SECONDS = 15.0  # duration without a step after which all workers are asked for their whereabouts
ASK_SECONDS = 10.0  # between two questions to the workers
ANSWER_SECONDS = 3.0  # after which a worker counts as silent
MOST_NAMED = 3  # the most instances named in a sentence


def announce_stalls(job: JobState, now: float) -> list[Order]:
    """Announce the beginning and the end of a stall; called periodically, after the time limits were checked."""
    orders, earlier_stall = _ask_whereabouts(job, now), job.stall
    stall = find_stall(job, now)
    if earlier_stall is not None and (stall is None or stall.identity != earlier_stall.identity):
        job.stall = None
        if job.phase is not Phase.OVER:
            event = events.StallOver(stalled=earlier_stall.stalled, seconds=now - earlier_stall.since, at=now)
            orders.append(Announce(event))
    if stall is not None:
        if job.stall is None:
            orders.append(Announce(_stall_event(job, stall, now)))
        job.stall = stall
    return orders


def _stall_event(job: JobState, stall: Stall, now: float) -> events.Stalled:
    step = job.furthest_position.step
    return events.Stalled(
        generation=job.number, step=step, stalled=stall.stalled, waiting=stall.waiting, reason=stall.reason, at=now
    )


def find_stall(job: JobState, now: float) -> Stall | None:
    """Find workers that have waited for other workers for longer than STALL_SECONDS, or return None."""
    current_round, members = job.round, job.roster.members
    present_members = [instance_id for instance_id in current_round.instances if instance_id in members]
    match job.phase:
        case Phase.TRAINING if current_round.checked_in:
            position = next(iter(current_round.checked_in.values())).position
            at_epoch_end = position.epoch and not position.offset
            place = (
                f"at the end of epoch {position.epoch - 1}"
                if at_epoch_end
                else f"at the boundary of step {position.step}"
            )
            return _stall_at(
                job, present_members, current_round.checked_in, place, ("has not arrived", "have not arrived"), now
            )
        case Phase.TRAINING:
            return _stall_inside_step(job, present_members, now)
        case Phase.PREPARING:
            place = f"to form generation {job.number}"
            return _stall_at(
                job, present_members, current_round.prepared, place, ("is not ready", "are not ready"), now
            )
        case Phase.FORMING:
            place = f"in generation {job.number}"
            return _stall_at(
                job, present_members, current_round.formed, place, ("has not formed it", "have not formed it"), now
            )
        case Phase.PARKED if job.between_loops:
            arrived_members = [instance_id for instance_id in present_members if members[instance_id].loop == job.loop]
            place = f"at loop {job.loop} over epochs"
            return _stall_at(job, present_members, arrived_members, place, ("has not arrived", "have not arrived"), now)
    return None


def _stall_at(
    job: JobState,
    present_members: Sequence[str],
    arrived: Collection[str],
    place: str,
    phrases: tuple[str, str],
    now: float,
) -> Stall | None:
    late_members = [instance_id for instance_id in present_members if instance_id not in arrived]
    waiting_members = [instance_id for instance_id in present_members if instance_id in arrived]
    if not late_members or not waiting_members or now - job.since <= STALL_SECONDS:
        return None
    fraction = f"{len(waiting_members)} of {len(present_members)} workers"
    reason = f"{fraction} wait {place}: {_name_instances(late_members, *phrases)}"
    return Stall((job.phase.value, job.number, place), tuple(late_members), tuple(waiting_members), reason, job.since)


def _stall_inside_step(job: JobState, present_members: Sequence[str], now: float) -> Stall | None:
    """Find a stall inside a step, from the workers' answers to the question whether they wait.

    If all workers run their scripts, no worker waits, so there is no stall. If all workers wait for summed gradients,
    no worker keeps the others waiting.
    """
    current_round, since = job.round, max(job.round.progress_at, job.since)
    if not present_members or now - since <= STALL_SECONDS or current_round.asked_at <= since:
        return None
    silent_members = [instance_id for instance_id in present_members if instance_id not in current_round.whereabouts]
    if silent_members and now - current_round.asked_at <= ANSWER_SECONDS:
        return job.stall
    waiting_members = [
        instance_id
        for instance_id in present_members
        if instance_id in current_round.whereabouts and current_round.whereabouts[instance_id].waits
    ]
    busy_members = [
        instance for instance in present_members if instance not in waiting_members and instance not in silent_members
    ]
    step = (
        max(current_round.whereabouts[instance_id].position.step for instance_id in waiting_members) + 1
        if waiting_members
        else 0
    )
    if not waiting_members:
        return None
    reasons = [
        *([_name_instances(busy_members, "is in its script", "are in their scripts")] if busy_members else []),
        *([_name_instances(silent_members, "does not answer", "do not answer")] if silent_members else []),
    ]
    fraction = f"{len(waiting_members)} of {len(present_members)} workers"
    reason = f"{fraction} wait for the sums of step {step}: {'; '.join(reasons)}"
    if not reasons:
        reason = f"all {len(present_members)} workers are inside step {step}: it is slow, or a server or a link hangs"
    stalled_members = tuple(instance_id for instance_id in present_members if instance_id not in waiting_members)
    return Stall((job.phase.value, job.number, str(step)), stalled_members, tuple(waiting_members), reason, since)


def _name_instances(instances: Sequence[str], singular: str, plural: str) -> str:
    names = ", ".join(instances[:MOST_NAMED])
    remainder = f" and {len(instances) - MOST_NAMED} more" if len(instances) > MOST_NAMED else ""
    return f"{names}{remainder} {singular if len(instances) == 1 else plural}"


def _ask_whereabouts(job: JobState, now: float) -> list[Order]:
    """Ask all workers whether they wait for summed gradients, if no worker has reported progress for a while."""
    current_round = job.round
    is_quiet = job.phase is Phase.TRAINING and not current_round.checked_in
    if (
        not is_quiet
        or now - max(current_round.progress_at, job.since) <= ASK_AFTER_SECONDS
        or now - current_round.asked_at <= ASK_SECONDS
    ):
        return []
    current_round.asked_at, current_round.whereabouts = now, {}
    return [ToWorker(instance_id, Where(generation=job.number)) for instance_id in job.roster.members]
