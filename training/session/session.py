"""The coordinator's state machine has a method for each event, which returns the orders to carry out. Pure.

Phases of a generation: WAITING (no worker holds the state) or PARKED (the state's holders wait for a group) ->
PREPARING (orders to form are sent) -> FORMING (the order to go is sent) -> TRAINING -> at each boundary TRAINING again,
or PREPARING the next generation -> OVER. The loss of a worker in mid-epoch leads from TRAINING through RELEASING to
PARKED. A loss that may leave other workers blocked inside ps-lite leads to WAITING: the supervisors kill and restart
the workers, and the next generation starts from a safe state or commit (`origin`). Messages are lost only with a
connection, so after each new connection the messages that may have been lost are sent again.

`JobState` holds the state of the job, and the `Round` in it holds the state of the present generation (package `job`).
Three packages contain functions of a JobState: `handlers` for messages, `phases` for decisions, and `recovery` for
losses, missed deadlines and a restarted coordinator. The functions in the package `generation` need no JobState.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyntrain.controller.contract.messages import Target
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.journal import Entry
from dyntrain.training.protocol.messages import (
    Broken,
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    Entered,
    Fetching,
    FirstStep,
    Formed,
    Prepared,
    Progress,
    Pumped,
    ScriptFailed,
    StepStatus,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    EndRequest,
    GroupFailed,
    GroupReady,
    Launch,
    Listed,
    NodeHello,
    NodeNotice,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.protocol.slots import node_of
from dyntrain.training.session.handlers import commits, launches, members, nodes, workers
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Order, ToNode
from dyntrain.training.session.phases.decisions import advance, call_back_nodes
from dyntrain.training.session.phases.wanted import refuse_target
from dyntrain.training.session.recovery import losses, stalls
from dyntrain.training.session.recovery.from_journal import restore_job


@dataclass
class Session:
    """The coordinator's state machine for one job.

    Callers pass each event to its method, with `now` in seconds since 1970, and carry out the returned orders one after
    another.
    """

    job: JobState

    @classmethod
    def restore(
        cls, options: Options, transfer_token: Callable[[], str], entries: Sequence[Entry], now: float
    ) -> Session:
        """Restore the session from the journal's entries, or begin a new job if the journal is empty."""
        return cls(restore_job(options, transfer_token, entries, now))

    @property
    def launch(self) -> Launch | None:
        """The launch, made by a user, whose command the nodes run.

        The value is None without a launch, after the launch's end, or if the nodes' configuration contains the command.
        """
        return None if self.job.phase is Phase.OVER else self.job.launch

    def report(self, now: float) -> JobReport:
        """Make the next job report to the controller.

        The sequence number of reports keeps growing when the coordinator is restarted.
        """
        self.job.sequence = max(self.job.sequence + 1, int(now * 1000))
        return self.job.report()

    def tick(self, now: float) -> list[Order]:
        return [*losses.tick(self.job, now), *stalls.announce_stalls(self.job, now)]

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all deadlines of the job by `seconds`, in which no order could be sent."""
        self.job.extend_deadlines(seconds)

    def new_target(self, target: Target, now: float) -> list[Order]:
        """Adopt a new target: the members that the controller wants.

        A target with a lower revision than the last accepted target is ignored, as an outdated value was read. A target
        with the same revision as the last accepted target, but different content, is refused, as the parameter has a
        second writer. The refusal lasts until a target with a higher revision is read.
        """
        job = self.job
        if job.target is not None and target.revision < job.target.revision:
            return []
        if job.target is not None and target.contradicts(job.target):
            return refuse_target(job, target, now)
        old_members = set(job.target.members or ()) if job.target else set()
        new_members = set(target.members or ())
        changed_nodes = [
            instance_id
            for instance_id in job.roster.nodes
            if (node_of(instance_id) in old_members) != (node_of(instance_id) in new_members)
        ]
        job.target = target
        job.causes |= target.causes
        orders: list[Order] = [
            ToNode(instance_id, Listed(listed=node_of(instance_id) in new_members)) for instance_id in changed_nodes
        ]
        return orders + call_back_nodes(job) + advance(job, now)

    def addresses(self, last_instance: str) -> tuple[str, ...] | None:
        """Return the addresses of the nodes that the target lists, with the address of `last_instance` at the end.

        The result is None before the first target, and while a restarted coordinator waits for its nodes.
        """
        job = self.job
        if job.target is None or job.phase is Phase.RECOVERING:
            return None
        known_instances = [instance for instance in job.target.members or () if instance in job.roster.addresses]
        return tuple(
            job.roster.addresses[instance_id]
            for instance_id in sorted(known_instances, key=lambda name: name == last_instance)
        )

    # ---- nodes

    def node_connected(self, hello: NodeHello, now: float) -> list[Order]:
        return nodes.handle_hello(self.job, hello, now)

    def node_lost(self, instance: str, now: float) -> list[Order]:
        return losses.node_lost(self.job, instance, now)

    def node_notice(self, instance: str, message: NodeNotice, now: float) -> list[Order]:
        return nodes.handle_notice(self.job, instance, message, now)

    def worker_started(self, instance: str, message: WorkerStarted, now: float) -> list[Order]:
        return nodes.handle_worker_started(self.job, instance, message, now)

    def worker_exited(self, instance: str, message: WorkerExited, now: float) -> list[Order]:
        return nodes.handle_worker_exited(self.job, instance, message, now)

    def group_ready(self, instance: str, message: GroupReady, now: float) -> list[Order]:
        return nodes.handle_group_ready(self.job, instance, message, now)

    def group_failed(self, instance: str, message: GroupFailed, now: float) -> list[Order]:
        return nodes.handle_group_failed(self.job, instance, message, now)

    def launch_requested(self, instance: str, launch: Launch, now: float) -> list[Order]:
        return launches.handle_launch_request(self.job, instance, launch, now)

    def end_requested(self, instance: str, message: EndRequest, now: float) -> list[Order]:
        return launches.handle_end_request(self.job, instance, message, now)

    # ---- workers

    def worker_connected(self, hello: WorkerHello, now: float) -> list[Order]:
        return workers.handle_hello(self.job, hello, now)

    def worker_disconnected(self, instance: str, pid: int, now: float) -> list[Order]:
        return losses.worker_disconnected(self.job, instance, pid, now)

    def worker_left(self, instance: str, now: float) -> list[Order]:
        return workers.handle_worker_left(self.job, instance, now)

    def loop_entered(self, instance: str, message: Entered, now: float) -> list[Order]:
        return workers.handle_entered(self.job, instance, message, now)

    def script_ended(self, instance: str, now: float) -> list[Order]:
        return workers.handle_script_ended(self.job, instance, now)

    def worker_prepared(self, instance: str, message: Prepared, now: float) -> list[Order]:
        return members.handle_prepared(self.job, instance, message, now)

    def worker_fetching(self, instance: str, message: Fetching, now: float) -> list[Order]:
        return members.handle_fetching(self.job, instance, message, now)

    def worker_formed(self, instance: str, message: Formed, now: float) -> list[Order]:
        return members.handle_formed(self.job, instance, message, now)

    def first_step(self, instance: str, message: FirstStep, now: float) -> list[Order]:
        return members.handle_first_step(self.job, instance, message, now)

    def worker_progressed(self, instance: str, message: Progress, now: float) -> list[Order]:
        return members.handle_progress(self.job, instance, message, now)

    def whereabouts(self, instance: str, message: Whereabouts, now: float) -> list[Order]:
        return members.handle_whereabouts(self.job, instance, message)

    def check_in(self, instance: str, message: CheckIn, now: float) -> list[Order]:
        return members.handle_check_in(self.job, instance, message, now)

    def step_status(self, instance: str, message: StepStatus, now: float) -> list[Order]:
        return members.handle_step_status(self.job, instance, message, now)

    def zeros_pushed(self, instance: str, message: Pumped, now: float) -> list[Order]:
        return members.handle_pumped(self.job, instance, message)

    def summation_failed(self, instance: str, message: Broken, now: float) -> list[Order]:
        return members.handle_broken(self.job, instance, message, now)

    def script_failed(self, instance: str, message: ScriptFailed, now: float) -> list[Order]:
        return members.handle_script_failed(self.job, instance, message, now)

    def commit_written(self, instance: str, message: Committed, now: float) -> list[Order]:
        return commits.handle_committed(self.job, instance, message)

    def commit_failed(self, instance: str, message: CommitFailed, now: float) -> list[Order]:
        return commits.handle_commit_failed(instance, message, now)

    def commit_unreadable(self, instance: str, message: CommitUnreadable, now: float) -> list[Order]:
        return commits.handle_unreadable(self.job, instance, message, now)
