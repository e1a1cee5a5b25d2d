"""Ends a job, or stops the ps-lite processes of generations. Pure."""

from __future__ import annotations

from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import Leave
from dyntrain.training.protocol.node_messages import Retire, StopGroup
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, StopCoordinator, ToNode, ToWorker


def finish_job(job: JobState, now: float) -> list[Order]:
    roster = job.roster
    job.writer = next(iter(job.members_present()), None)  # worker 0, unless it is lost
    orders: list[Order] = [
        Journal(journal.JobFinished(position=job.position, at=now, writer=job.writer)),
        Announce(events.Finished(position=job.position, at=now)),
    ]
    leave_message = Leave(generation=job.number, reason="job finished", finished=True)
    orders += [
        ToWorker(instance_id, leave_message.model_copy(update={"writes": instance_id == job.writer}))
        for instance_id in [*roster.members, *roster.standing, *roster.passing]
    ]
    roster.leaving, roster.members = dict(roster.members), {}
    job.outcome = "finished"
    job.enter(Phase.OVER, now)
    return orders + close_when_all_left(job)


def fail(job: JobState, reason: str, now: float) -> list[Order]:
    roster = job.roster
    orders: list[Order] = [
        Journal(journal.JobFailed(reason=reason, at=now)),
        Announce(events.Failed(reason=reason, at=now)),
    ]
    hellos = {**roster.members, **roster.leaving, **roster.standing, **roster.passing}
    orders += [DropWorker(instance_id, hello.pid, reason) for instance_id, hello in hellos.items()]
    roster.members, roster.leaving, roster.standing, roster.passing = {}, {}, {}, {}
    job.phase, job.outcome, job.failure = Phase.OVER, "failed", reason
    return orders + close_when_all_left(job)


def close_when_all_left(job: JobState) -> list[Order]:
    """If the job is over and the last worker has left, order all nodes to exit and the coordinator to stop."""
    if job.phase is not Phase.OVER or job.roster.leaving or job.awaited or job.closed:
        return []
    job.closed = True
    orders: list[Order] = [ToNode(instance_id, Retire(reason=f"job {job.outcome}")) for instance_id in job.roster.nodes]
    return [*orders, StopCoordinator(job.outcome)]


def stop_groups(job: JobState, generation: int) -> list[Order]:
    """Stop the ps-lite processes of the given generation and of earlier generations."""
    if not generation:
        return []
    base_nodes = [instance_id for instance_id, node in job.roster.nodes.items() if node.hello.base]
    return [ToNode(instance_id, StopGroup(generation=generation)) for instance_id in base_nodes]
