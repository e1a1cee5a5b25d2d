"""T21, the coordinators' part: one takes the job over from another that still lives, and the nodes are told of the
right one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.local.pace import patient
from dyntrain.training.coordinator.current_job import open_job
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.coordinator.terms import Overtaken, TermJournal, read_journal
from dyntrain.training.events import Takeover
from dyntrain.training.journal import CommitWritten, GenerationSettled, JobClosed, JobFinished
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import read_events
from dyntrain.training.protocol.messages import START, Position, WorkerHello
from dyntrain.training.protocol.node_messages import NodeHello, RestartWorker, Retire
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, ToNode
from dyntrain.training.session.phases.ending import fail
from dyntrain.training.session.session import Session
from waiting import until

A, B = "i-0000000000000000a", "i-0000000000000000b"
OPTIONS = Options(cluster="demo", job="job-1", started_at=1.0, limits=Limits(1, 8), workers=1)
GENERATION = GenerationSettled(
    number=4, members=(A, B), position=START, at=2.0, pids={A: 76, B: 77}, holders=(A, B), hosts={A: 1}
)


class SharedHosts:
    """The parameter store that all coordinators of the test write to."""

    def __init__(self) -> None:
        self.endpoint: CoordinatorEndpoint | None = None
        self.token = ""
        self.reports: list[JobReport] = []

    def read_target(self) -> Target | None:
        return Target.of(1, (A, B))

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self.endpoint, self.token = endpoint, token

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        return self.endpoint

    def report(self, report: JobReport) -> None:
        self.reports.append(report)


def test_t21_the_overtaken_coordinator_ends_and_a_late_publication_of_it_is_put_right(tmp_path: Path) -> None:
    """The nodes follow whatever address is published: one that points to the overtaken coordinator would stop the
    job.
    """
    hosts, folder = SharedHosts(), JobFolder(tmp_path)

    async def scenario() -> None:
        first = asyncio.create_task(Coordinator(OPTIONS, folder, hosts, "127.0.0.1", A, term=0).run())
        await until(lambda: hosts.endpoint, 20, "the first is published")
        stale, token = hosts.endpoint, hosts.token
        assert stale is not None
        second = asyncio.create_task(Coordinator(OPTIONS, folder, hosts, "127.0.0.1", B, term=5).run())
        with pytest.raises(Overtaken, match=f"{B} has taken the job over in term 5"):
            await asyncio.wait_for(first, patient(20))
        await until(lambda: hosts.endpoint != stale, 20, "the second is published")
        own = hosts.endpoint
        assert own is not None
        assert (own.instance_id, own.certificate != stale.certificate, hosts.token != token) == (B, True, True)
        hosts.publish(stale, token)
        await until(lambda: hosts.endpoint == own and hosts.token != token, 20, "the second publishes itself again")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    asyncio.run(scenario())
    assert [event.former for event in read_events(folder.events) if isinstance(event, Takeover)] == [A]


def node(instance: str, pid: int | None = None) -> NodeHello:
    return NodeHello(
        cluster="demo", instance_id=instance, private_ip="10.0.0.2", token="t", attempt=1, base=True, worker_pid=pid
    )


def worker(instance: str, pid: int) -> WorkerHello:
    return WorkerHello(
        cluster="demo", instance_id=instance, private_ip="10.0.0.2", token="t", pid=pid, state_port=1, epochs=2,
        samples=8, global_batch=4, seed=0, layout="l", generation=4, stage="trains",
    )  # fmt: skip


def test_t21_one_that_is_overtaken_at_the_very_end_does_not_say_that_it_closed_the_job(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)

    class TakenAtTheEnd(SharedHosts):
        def report(self, report: JobReport) -> None:
            super().report(report)
            if report.state == "failed":
                TermJournal(folder.ledger, B, 5).close()

    async def scenario() -> None:
        hosts = TakenAtTheEnd()
        coordinator = Coordinator(OPTIONS, folder, hosts, "127.0.0.1", A, term=0)
        running = asyncio.create_task(coordinator.run())
        await until(lambda: hosts.reports, 20, "it reports")
        coordinator.carry_out(fail(coordinator.session.job, "it was made to", 1.0))
        with pytest.raises(Overtaken, match=f"{B} has taken the job over in term 5"):
            await asyncio.wait_for(running, patient(20))

    asyncio.run(scenario())


def test_the_last_word_of_a_job_that_is_over_says_that_it_is_the_last(tmp_path: Path) -> None:
    """Before it, a coordinator that started would say once more that the job is over, and begin no other."""
    hosts, folder = SharedHosts(), JobFolder(tmp_path)

    async def scenario() -> None:
        coordinator = Coordinator(OPTIONS, folder, hosts, "127.0.0.1", A, term=0)
        running = asyncio.create_task(coordinator.run())
        await until(lambda: hosts.reports, 20, "it reports")
        coordinator.carry_out(fail(coordinator.session.job, "it was made to", 1.0))
        await asyncio.wait_for(running, patient(40))

    asyncio.run(scenario())
    assert [report.state for report in hosts.reports if report.closed] == ["failed"]
    assert hosts.reports[-1].closed
    assert isinstance(read_journal(folder.ledger)[-1], JobClosed)


def test_t21_the_successor_starts_from_the_last_commit_and_ends_the_workers_of_the_lost_generation(
    tmp_path: Path,
) -> None:
    """Their training threads are blocked on servers that are gone with the machine: without the order each would cost
    ten seconds more.
    """
    before = TermJournal(tmp_path / "ledger", A, 0)
    before.append(GENERATION)
    before.append(CommitWritten(generation=4, position=Position(epoch=0, offset=4, step=1), name="1-4.commit"))

    async def recover() -> Session:
        coordinator = Coordinator(OPTIONS, JobFolder(tmp_path), SharedHosts(), "127.0.0.1", B, term=5)
        task = asyncio.create_task(coordinator.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return coordinator._session

    session = asyncio.run(recover())
    assert (session.job.phase, session.job.number) == (Phase.WAITING, 4)
    assert session.job.commit is not None
    assert session.job.commit[1] == "1-4.commit"
    early = session.worker_connected(worker(B, 77), now=3.0)  # before its node has found the new coordinator
    assert [type(order) for order in early] == [DropWorker]
    late = session.node_connected(node(B, pid=77), now=3.1)
    ordered = [
        order.message.pid for order in late if isinstance(order, ToNode) and isinstance(order.message, RestartWorker)
    ]
    assert ordered == [77]
    again = session.node_connected(node(B, pid=78), now=3.2)
    assert not any(isinstance(order, ToNode) and isinstance(order.message, RestartWorker) for order in again), (
        "the fresh worker is left alone"
    )


def test_t21_a_job_whose_end_nobody_was_told_of_is_opened_to_say_so_and_not_trained_again(tmp_path: Path) -> None:
    job, started = open_job(tmp_path, "demo", 100.0)
    folder = JobFolder.of(tmp_path, "demo", job)
    journal = TermJournal(folder.ledger, A, 0)
    journal.append(GENERATION)
    journal.append(JobFinished(position=Position(epoch=2, offset=0, step=4), at=150.0))
    assert open_job(tmp_path, "demo", 200.0) == (job, started)
    session = Session.restore(OPTIONS, lambda: "t", read_journal(folder.ledger), 201.0)
    assert (session.job.phase, session.report(201.0).state) == (Phase.OVER, "finished")
    assert any(
        isinstance(order, ToNode) and isinstance(order.message, Retire)
        for order in session.node_connected(node(B), 202.0)
    )
    journal.append(JobClosed(at=203.0))
    assert open_job(tmp_path, "demo", 300.0)[0] != job
