"""The node's one worker process, by a law: whatever orders, crashes and lost connections follow each other, what runs
is what the coordinator, or in its absence the budget, allows.

What would break for a user: two workers of one node in a job, a worker that nobody asked for, or none where one is due.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.processes import Program
from dyntrain.node_bootstrap.supervision.worker import Worker, WorkerState
from dyntrain.training.protocol.node_messages import WorkerExited, WorkerStarted
from hypothesis import example, given
from hypothesis import strategies as st

BUDGET = 2
AT_ONCE = Timing(own_restart_backoff=Backoff(0.0, 0.0), max_own_restarts=BUDGET)  # else it waits for orders for minutes


@dataclass(eq=False)
class Child:
    pid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = -9
    stops: int = 0

    async def wait(self) -> int:
        await self.ended.wait()
        return self.code

    async def stop(self, grace: float = 0.0) -> None:
        self.stops += 1
        self.ended.set()

    def last_output(self, limit: int = 0) -> str:
        return "why"


class Node:
    """The worker's surroundings, in memory."""

    program = Program(["train"], {}, None)

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.messages: list[Any] = []
        self.calls = Counter[str]()
        here: Any = self
        self.worker = Worker(self.program, here, self.tell, self.count("failed"), self.count("recovered"), AT_ONCE)

    def count(self, name: str) -> Any:
        return lambda *words: self.calls.update([name])

    def tell(self, message: Any) -> bool:
        self.messages.append(message)
        return True

    async def start(self, name: str, program: Program, niceness: int = 0) -> Child:
        assert not self.running, "two workers of one node"
        self.children.append(Child(100 + len(self.children)))
        return self.children[-1]

    @property
    def running(self) -> list[Child]:
        return [child for child in self.children if not child.ended.is_set()]

    async def do(self, event: str, argument: Any) -> None:
        worker, pid = self.worker, self.children[-1].pid if self.children else 1
        match event:
            case "welcomed":
                await worker.on_welcome(argument)
            case "launch":
                worker.set_program(self.program if argument else None)
                await worker.on_welcome("job 1")
            case "disconnected":
                worker.on_disconnect()
            case "exits" if self.running:
                self.running[0].code = argument
                self.running[0].ended.set()
            case "restart":
                await worker.restart({"this": pid, "earlier": pid - 1, "any": None}[argument], "ordered")
            case "cool_down":
                await worker.cool_down({"this": pid, "earlier": pid - 1}[argument[0]], 60.0, argument[1])
            case "suspend":
                assert await worker.suspend(1.0) is (worker.state is not WorkerState.FAILED)
            case "stop":
                await worker.stop(1.0)
        for _ in range(20):  # nothing here waits for anything but the next event
            await asyncio.sleep(0)


@dataclass
class Expected:
    """What the node is to do, in the words of its documents."""

    state: WorkerState = WorkerState.ABSENT
    job: str = ""
    connected: bool = False
    started: int = 0
    own: int = 0  # restarts without an order
    exits: int = 0  # told, again too
    failed: int = 0
    recovered: int = 0
    ended_well: bool = False  # its last process
    launched: bool = True  # else there is nothing to train

    def start(self) -> None:
        self.state, self.started, self.ended_well = WorkerState.RUNNING, self.started + 1, False

    def alone(self) -> None:
        """Crashed, and nobody there to decide."""
        if self.state is WorkerState.CRASHED and not self.connected:
            if self.own < BUDGET:
                self.own += 1
                self.start()
            else:
                self.state, self.failed = WorkerState.FAILED, self.failed + 1

    def do(self, event: str, argument: Any) -> None:
        state, kinds = self.state, WorkerState
        if event == "launch":
            self.launched, event, argument = argument, "welcomed", "job 1"
        match event:
            case "welcomed" if not self.launched:
                self.job, self.connected = argument, True
                self.recovered += state is kinds.FAILED
                self.state = kinds.RETIRED if state is kinds.RETIRED else kinds.ABSENT
            case "welcomed":
                another, self.job, self.connected = argument != self.job, argument, True
                if state is kinds.ABSENT or (another and state is not kinds.RETIRED):
                    self.start()
                elif state in (kinds.CRASHED, kinds.FAILED):
                    self.exits += 1
            case "disconnected":
                self.connected = False
            case "exits" if state is kinds.RUNNING:
                self.state = kinds.CRASHED if argument else kinds.LEFT
                self.exits, self.ended_well = self.exits + 1, not argument
            case "restart" if state is not kinds.RETIRED:
                due = state is kinds.LEFT if argument == "any" else state in (kinds.CRASHED, kinds.FAILED)
                if due or (argument == "this" and self.started):
                    self.recovered += state is kinds.FAILED
                    self.start()
            case "cool_down" if state is kinds.CRASHED and argument == ("this", True):
                self.state, self.failed = kinds.FAILED, self.failed + 1
            case "suspend" if state in (kinds.RUNNING, kinds.CRASHED):
                self.state = kinds.ABSENT
            case "stop":
                self.state = kinds.RETIRED
        self.alone()


def lived(events: list[tuple[str, Any]]) -> Node:
    async def live() -> Node:
        node, expected = Node(), Expected()
        task = asyncio.create_task(node.worker.run())
        for number, (event, argument) in enumerate(events):
            if event == "restart" and not expected.launched:
                continue  # there is nothing that could be started, and nobody says so
            await node.do(event, argument)
            if task.done():
                task.result()
            expected.do(event, argument)
            kinds = [type(message) for message in node.messages]
            there = (
                node.worker.state, len(node.children), len(node.running), node.calls["failed"],
                node.calls["recovered"], kinds.count(WorkerExited), kinds.count(WorkerStarted),
            )  # fmt: skip
            assert there == (
                expected.state, expected.started, expected.state is WorkerState.RUNNING, expected.failed,
                expected.recovered, expected.exits, expected.started,
            ), events[: number + 1]  # fmt: skip
            assert node.worker.exited_cleanly.is_set() is expected.ended_well
            assert node.worker.pid == (node.running[0].pid if node.running else None)
        task.cancel()
        return node

    return asyncio.run(live())


PIDS = st.sampled_from(["this", "earlier"])
EVENTS = st.one_of(
    st.tuples(st.just("welcomed"), st.sampled_from(["job 1", "job 1", "job 2"])),
    st.tuples(st.just("launch"), st.booleans()),
    st.tuples(st.just("disconnected"), st.none()),
    st.tuples(st.just("exits"), st.sampled_from([0, 1, -9])),
    st.tuples(st.just("restart"), st.sampled_from(["this", "earlier", "any"])),
    st.tuples(st.just("cool_down"), st.tuples(PIDS, st.booleans())),
    st.tuples(st.just("suspend"), st.none()),
    st.tuples(st.just("stop"), st.none()),
)
WELCOME, CRASH, ALONE = ("welcomed", "job 1"), ("exits", 1), ("disconnected", None)


OVER, AGAIN = ("launch", False), ("launch", True)


@given(st.lists(EVENTS, max_size=15))
@example([WELCOME, CRASH, ALONE, CRASH, WELCOME])
@example([WELCOME, OVER, WELCOME, AGAIN, CRASH, ("cool_down", ("this", True)), OVER, AGAIN, ("stop", None), OVER])
@example([WELCOME, CRASH, ("restart", "this"), CRASH, ("restart", "earlier"), ("restart", "earlier")])
@example([WELCOME, ALONE, CRASH, CRASH, CRASH, WELCOME, ("restart", "this")])
@example([WELCOME, CRASH, ("cool_down", ("earlier", True)), ("cool_down", ("this", True)), ("suspend", None), WELCOME])
@example([WELCOME, ("exits", 0), WELCOME, ("restart", "earlier"), ("restart", "any"), ("restart", "any")])
@example([WELCOME, ("suspend", None), ("restart", "any"), WELCOME, ("stop", None), ("restart", "this"), WELCOME])
@example([WELCOME, ("exits", 0), ("suspend", None), WELCOME, ("welcomed", "job 2"), CRASH, ("welcomed", "job 1")])
def test_what_runs_is_what_was_asked_for(events: list[tuple[str, Any]]) -> None:
    lived([("welcomed", "job 1"), *events] if not events or events[0] != WELCOME else events)


def test_what_a_worker_leaves_running_ends_with_it() -> None:
    for event in (("exits", 0), ("exits", 1), ("suspend", None), ("stop", None), ("welcomed", "job 2")):
        node = lived([WELCOME, event])
        assert node.children[0].stops >= 1, event


def test_a_crash_is_told_with_its_process_its_code_and_its_last_words() -> None:
    messages = lived([WELCOME, CRASH, WELCOME]).messages
    exits = [message for message in messages if isinstance(message, WorkerExited)]
    assert {(message.pid, message.code) for message in exits} == {(100, 1)}
    assert all("why" in message.reason for message in exits)


def test_an_order_that_never_comes_is_waited_for_from_when_the_coordinator_heard_of_the_crash() -> None:
    """And then the node gives the worker up, rather than stand there with none."""

    async def live(order: float) -> Node:
        node = Node()
        node.worker._timing = replace(AT_ONCE, restart_order_seconds=order)
        task = asyncio.create_task(node.worker.run())
        for event in (WELCOME, CRASH):
            await node.do(*event)
        task.cancel()
        return node

    assert asyncio.run(live(order=0.0)).worker.state is WorkerState.FAILED
    assert asyncio.run(live(order=600.0)).worker.state is WorkerState.CRASHED


def test_a_script_that_has_left_the_job_has_its_time_for_its_last_lines_and_no_more() -> None:
    async def live() -> None:
        node = Node()
        await node.worker.wait_for_end(600.0)  # none runs: nobody waits
        await node.do(*WELCOME)
        saves = asyncio.create_task(node.worker.wait_for_end(600.0))
        await asyncio.sleep(0)
        assert not saves.done()
        await node.do("exits", 0)
        await saves
        await node.do("welcomed", "job 2")
        await node.worker.wait_for_end(0.0)
        assert len(node.running) == 1, "to end it is another's to do"

    asyncio.run(live())
