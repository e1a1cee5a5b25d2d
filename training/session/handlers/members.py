"""Handles messages of the present generation's members, from the order to form to the next boundary. Pure.

The handlers ignore messages about another generation, and messages of a worker that is no longer a member.
"""

from __future__ import annotations

from dyntrain.training import events
from dyntrain.training.protocol.messages import (
    Broken,
    CheckIn,
    Fetching,
    FirstStep,
    Formed,
    Go,
    Prepared,
    Proceed,
    Progress,
    Pumped,
    ScriptFailed,
    StepStatus,
    Whereabouts,
)
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Order, ToWorker
from dyntrain.training.session.phases.decisions import advance, release_survivors, release_to_stop
from dyntrain.training.session.phases.ending import fail
from dyntrain.training.session.phases.formation import finish_formation


def handle_prepared(job: JobState, instance: str, message: Prepared, now: float) -> list[Order]:
    if not job.is_current(instance, message.generation):
        return []
    if job.phase is Phase.FORMING:  # the order to go was lost with a connection
        return [ToWorker(instance, Go(generation=job.number))]
    job.round.prepared.add(instance)
    return advance(job, now)


def handle_fetching(job: JobState, instance: str, message: Fetching, now: float) -> list[Order]:
    if job.is_current(instance, message.generation):
        job.round.fetching[instance] = message
    return []


def handle_formed(job: JobState, instance: str, message: Formed, now: float) -> list[Order]:
    if not job.is_current(instance, message.generation):
        return []
    generation = job.round.generation
    if job.phase is Phase.TRAINING and generation is not None:  # the order to proceed was lost
        return [ToWorker(instance, Proceed(generation=job.number, position=generation.position))]
    job.round.formed[instance] = message
    return finish_formation(job, now)


def handle_first_step(job: JobState, instance: str, message: FirstStep, now: float) -> list[Order]:
    if not job.is_current(instance, message.generation):
        return []
    job.round.progress_at = now
    orders = _mark_active(job, instance, message.generation, now)
    first_steps = job.round.first_steps
    first_steps[instance] = message
    paused_steps = [step for step in first_steps.values() if step.pause is not None]
    if len(first_steps) == len(job.roster.members) and paused_steps:
        longest_step = max(paused_steps, key=lambda step: step.pause or 0.0)
        seconds = longest_step.pause or 0.0
        pause_event = events.Pause(generation=message.generation, seconds=seconds, phases=longest_step.phases, at=now)
        orders.append(Announce(pause_event))
    return orders


def _mark_active(job: JobState, instance: str, generation: int, now: float) -> list[Order]:
    if instance in job.round.active:
        return []
    job.round.active.add(instance)
    pid, epoch = job.roster.members[instance].pid, job.position.epoch
    return [Announce(events.Joined(instance=instance, pid=pid, generation=generation, epoch=epoch, at=now))]


def handle_progress(job: JobState, instance: str, message: Progress, now: float) -> list[Order]:
    if job.is_current(instance, message.generation):
        job.round.progress[instance], job.round.progress_at = message, now
    return []


def handle_whereabouts(job: JobState, instance: str, message: Whereabouts) -> list[Order]:
    if job.is_current(instance, message.generation):
        job.round.whereabouts[instance] = message
    return []


def handle_check_in(job: JobState, instance: str, message: CheckIn, now: float) -> list[Order]:
    current_round = job.round
    if not job.is_current(instance, message.generation) or job.phase not in (Phase.TRAINING, Phase.RECOVERING):
        return []
    current_round.progress_at = now
    announcements = _announce_silenced_rules(job, instance, message, now)
    return announcements + _check_in_at_boundary(job, instance, message, now)


def _announce_silenced_rules(job: JobState, instance: str, message: CheckIn, now: float) -> list[Order]:
    """Announce which rules of the script's checks are silenced, each rule only once for all workers together."""
    new_rules = {code: reason for code, reason in message.silenced.items() if code not in job.silenced}
    job.silenced |= set(new_rules)
    return [Announce(events.ChecksSilenced(instance=instance, rules=new_rules, at=now))] if new_rules else []


def _check_in_at_boundary(job: JobState, instance: str, message: CheckIn, now: float) -> list[Order]:
    current_round = job.round
    if message.position == current_round.proceed_position and message.stop and job.phase is Phase.TRAINING:
        return release_to_stop(job, instance, now)
    if message.position == current_round.proceed_position:
        # the order to proceed was lost with a connection, or this worker repeats its message
        return [ToWorker(instance, Proceed(generation=job.number, position=message.position))]
    if not current_round.checked_in:
        job.since = now
    current_round.checked_in[instance] = message
    return _mark_active(job, instance, message.generation, now) + advance(job, now)


def handle_script_failed(job: JobState, instance: str, message: ScriptFailed, now: float) -> list[Order]:
    """Handle an exception that the script raised on a worker that was a member when the generation was formed.

    Members that are already treated as lost are included: if the scripts of all members fail at once, the messages
    arrive one after another.
    """
    member_ids = job.round.instances
    if instance not in member_ids or message.generation != job.number:
        return []
    step, error = message.position.step, message.error
    orders: list[Order] = []
    job.last_exception = step, message.traceback
    if not job.trouble.was_announced(step, error):
        event = events.ScriptFailed(instance=instance, step=step, traceback=message.traceback, at=now)
        orders.append(Announce(event))
    if message.past_help and job.phase is not Phase.OVER:
        orders += fail(job, f"the script cannot go on: {error}", now)
    elif job.trouble.record_exception(instance, step, error, member_ids):
        orders += fail(job, f"the script fails at step {step} on every worker: {error}", now)
    return orders


def handle_step_status(job: JobState, instance: str, message: StepStatus, now: float) -> list[Order]:
    survivor_release = job.round.release
    if survivor_release is None or not job.is_current(instance, message.generation):
        return []
    return survivor_release.record_status(instance, message, job.roster.members) + advance(job, now)


def handle_broken(job: JobState, instance: str, message: Broken, now: float) -> list[Order]:
    """Begin a release because the summation of a worker's gradients has failed.

    When the summation fails, the lost worker is not known yet; other messages will soon name this worker.
    """
    if job.phase is not Phase.TRAINING or not job.is_current(instance, message.generation):
        return []
    return release_survivors(job, "unknown", f"{instance} has lost the sums: {message.reason}", now)


def handle_pumped(job: JobState, instance: str, message: Pumped) -> list[Order]:
    survivor_release = job.round.release
    if survivor_release is None or not job.is_current(instance, message.generation):
        return []
    return survivor_release.record_pumped(instance, message, job.roster.members)
