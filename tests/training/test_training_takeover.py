"""T21, the coordinators' part: one takes the job over from another that still lives, and the nodes are told of the right one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.contract import CoordinatorEndpoint, JobReport, Target
from training.coordinator import CLOSED, Coordinator, open_job
from training.generation import Limits
from training.knowledge import Options, Phase
from training.layout import JobFolder
from training.ledger import read_lines
from training.orders import DropWorker, ToNode
from training.protocol import NodeHello, RestartWorker, Retire, WorkerHello
from training.session import Session
from training.terms import Overtaken, TermJournal

A, B = "i-0000000000000000a", "i-0000000000000000b"
OPTIONS = Options(cluster="demo", job="job-1", started_at=1.0, limits=Limits(1, 8), workers=1)
START = {"epoch": 0, "offset": 0, "step": 0}
RECOVERY = {"pids": {A: 76, B: 77}, "holders": [A, B], "hosts": {A: 1}}
GENERATION = {"kind": "generation", "number": 4, "position": START, "members": [A, B], "at": 2.0, "commit": None, **RECOVERY}


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

    def published(self) -> CoordinatorEndpoint | None:
        return self.endpoint

    def report(self, report: JobReport) -> None:
        self.reports.append(report)


async def until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def test_t21_the_overtaken_coordinator_ends_and_a_late_publication_of_it_is_put_right(tmp_path: Path) -> None:
    """The nodes follow whatever address is published: one that points to the overtaken coordinator would stop the job."""
    hosts, folder = SharedHosts(), JobFolder(tmp_path)

    async def scenario() -> None:
        first = asyncio.create_task(Coordinator(OPTIONS, folder, hosts, "127.0.0.1", A, term=0).run())
        await until(lambda: hosts.endpoint, "the first is published")
        stale, token = hosts.endpoint, hosts.token
        assert stale is not None
        second = asyncio.create_task(Coordinator(OPTIONS, folder, hosts, "127.0.0.1", B, term=5).run())
        with pytest.raises(Overtaken, match=f"{B} has taken the job over in term 5"):
            await asyncio.wait_for(first, 20)
        await until(lambda: hosts.endpoint != stale, "the second is published")
        own = hosts.endpoint
        assert own is not None
        assert (own.instance_id, own.certificate != stale.certificate, hosts.token != token) == (B, True, True)
        hosts.publish(stale, token)
        await until(lambda: hosts.endpoint == own and hosts.token != token, "the second publishes itself again")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    asyncio.run(scenario())
    assert [event["former"] for event in read_lines(folder.events) if event["event"] == "takeover"] == [A]


def node(instance: str, pid: int | None = None) -> NodeHello:
    return NodeHello(cluster="demo", instance_id=instance, private_ip="10.0.0.2", token="t", attempt=1, base=True, worker_pid=pid)


def worker(instance: str, pid: int) -> WorkerHello:
    return WorkerHello(
        cluster="demo", instance_id=instance, private_ip="10.0.0.2", token="t", pid=pid, state_port=1, epochs=2, samples=8, global_batch=4, seed=0,
        layout="l", generation=4, stage="trains",
    )  # fmt: skip


def test_t21_the_successor_starts_from_the_last_commit_and_ends_the_workers_of_the_lost_generation(tmp_path: Path) -> None:
    """Their training threads are blocked on servers that are gone with the machine: without the order each would cost ten seconds more."""
    before = TermJournal(tmp_path / "ledger", A, 0)
    commit = {"kind": "commit", "generation": 4, "position": {"epoch": 0, "offset": 4, "step": 1}, "name": "1-4.commit"}
    for record in (GENERATION, commit):
        before.append(record)

    async def made() -> Session:
        coordinator = Coordinator(OPTIONS, JobFolder(tmp_path), SharedHosts(), "127.0.0.1", B, term=5)
        task = asyncio.create_task(coordinator.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return coordinator._session

    session = asyncio.run(made())
    assert (session.phase, session.number) == (Phase.WAITING, 4)
    assert session.commit is not None
    assert session.commit[1] == "1-4.commit"
    early = session.worker_connected(worker(B, 77), now=3.0)  # before its node has found the new coordinator
    assert [type(order) for order in early] == [DropWorker]
    late = session.node_connected(node(B, pid=77), now=3.1)
    ordered = [order.message.pid for order in late if isinstance(order, ToNode) and isinstance(order.message, RestartWorker)]
    assert ordered == [77]
    again = session.node_connected(node(B, pid=78), now=3.2)
    assert not any(isinstance(order, ToNode) and isinstance(order.message, RestartWorker) for order in again), "the fresh worker is left alone"


def test_t21_a_job_whose_end_nobody_was_told_of_is_opened_to_say_so_and_not_trained_again(tmp_path: Path) -> None:
    job, started = open_job(tmp_path, "demo", 100.0)
    folder = JobFolder.of(tmp_path, "demo", job)
    journal = TermJournal(folder.ledger, A, 0)
    for record in (GENERATION, {"kind": "finished", "position": {"epoch": 2, "offset": 0, "step": 4}}):
        journal.append(record)
    assert open_job(tmp_path, "demo", 200.0) == (job, started)
    session = Session.recovered(OPTIONS, lambda: "t", journal.records + list(read_lines(folder.ledger / "journal.jsonl")), 201.0)
    assert (session.phase, session.report(201.0).state) == (Phase.OVER, "finished")
    assert any(isinstance(order, ToNode) and isinstance(order.message, Retire) for order in session.node_connected(node(B), 202.0))
    journal.append({"kind": CLOSED, "at": 203.0})
    assert open_job(tmp_path, "demo", 300.0)[0] != job
