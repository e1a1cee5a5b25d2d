"""Handles the workers' messages that a commit was written, could not be written, or was found unreadable. Pure."""

from __future__ import annotations

from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import CommitFailed, Committed, CommitUnreadable
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, Journal, Order
from dyntrain.training.session.phases.decisions import advance
from dyntrain.training.session.phases.rollback import cancel_generation


def handle_committed(job: JobState, instance: str, message: Committed) -> list[Order]:
    # Of two commits of the same step, the later generation's commit is newer, as when old commits are deleted.
    if message.generation <= job.void_until or (job.commit and message.position.step < job.commit[0].step):
        return []
    if instance != job.committer and message.generation < job.committer_since:
        return []  # the present committer did not know of this commit, and may have deleted it
    job.trouble.record_safe_step(message.position.step)
    job.record_commit(message.position, message.name, message.generation)
    entry = journal.CommitWritten(generation=message.generation, position=message.position, name=message.name)
    return [Journal(entry)]


def handle_commit_failed(instance: str, message: CommitFailed, now: float) -> list[Order]:
    step = message.position.step
    return [Announce(events.CommitFailed(instance=instance, step=step, reason=message.reason, at=now))]


def handle_unreadable(job: JobState, instance: str, message: CommitUnreadable, now: float) -> list[Order]:
    """Handle the report that the safe state or commit which a generation's source was to load is damaged.

    The job goes on from another node's safe state, or from the previous commit; steps after the position of this commit
    are void.
    """
    if not job.is_current(instance, message.generation) or job.phase is not Phase.PREPARING:
        return []
    orders: list[Order] = []
    if (safe_copy := job.roster.members[instance].safe) and safe_copy.name == message.name:
        job.unreadable_copies.add((instance, message.name))
        step, reason = job.position.step, message.reason
        orders.append(Announce(events.SafeStateUnreadable(instance=instance, step=step, reason=reason, at=now)))
    if job.commit and job.commit[1] == message.name:
        position = job.commit[0]
        job.drop_commit(message.reason)
        fallback = job.commit[0] if job.commit else None
        name, reason = message.name, message.reason
        entry = journal.CommitFoundUnreadable(name=name, position=position, instead=fallback, reason=reason, at=now)
        orders.append(Journal(entry))
        orders.append(
            Announce(events.CommitUnreadable(name=name, position=position, instead=fallback, reason=reason, at=now))
        )
    return [*orders, *cancel_generation(job, message.reason, now), *advance(job, now)]
