"""A node with several workers: each has a line to the coordinator of its own, and one life and one end are the node's.

What would break for a user: a worker that takes another one's place, that writes into its log, or that is left behind
when the node has gone.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from dyntrain.controller.contract.messages import ControlFile
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.node import RETIRED
from dyntrain.node_bootstrap.reports.shipping import agent_config
from dyntrain.training.protocol.node_messages import NodeHello, RestartWorker, Retire, WorkerExited, WorkerStarted
from node_coordinator import start_coordinator
from node_fakes import INSTANCE, living, processes_of, wait_until, world

NAMES = {INSTANCE, f"{INSTANCE}:1", f"{INSTANCE}:2"}


def test_each_worker_of_a_node_has_a_line_a_control_file_and_a_log_and_all_end_with_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(workers_per_node=3)
            async with living(here.dependencies()) as node:
                await wait_until(lambda: len(here.workers_started()) == 3, "all workers are started")
                await wait_until(lambda: set(coordinator.lines) == NAMES, "each has its line")
                hellos = {hello.slot: hello for hello in coordinator.hellos}
                assert {(hello.slot, hello.slots, hello.instance_id) for hello in hellos.values()} == {
                    (slot, 3, INSTANCE) for slot in range(3)
                }
                controls = sorted(here.layout.control_file.parent.glob("control*.json"))
                files = [ControlFile.model_validate_json(path.read_text()) for path in controls]
                assert sorted((file.slot, file.slots) for file in files) == [(0, 3), (1, 3), (2, 3)]
                assert {path.name for path in here.layout.log_folder.glob("worker*.log")} == {
                    "worker.log",
                    "worker-1.log",
                    "worker-2.log",
                }
                await coordinator.lines[INSTANCE].send(Retire(reason="job finished").model_dump_json())
                assert await node == RETIRED
            await coordinator.stop()
            assert processes_of(tmp_path) == []

    asyncio.run(scenario())


def test_an_order_to_one_worker_leaves_the_others_of_its_node_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(workers_per_node=2)
            async with living(here.dependencies()):
                await wait_until(lambda: len(here.workers_started()) == 2, "both workers are started")
                second = coordinator.lines[f"{INSTANCE}:1"]
                before = {worker["pid"] for worker in here.workers_started()}
                for pid in before:  # only one of them is this line's
                    await second.send(RestartWorker(pid=pid, reason="lost").model_dump_json())
                await wait_until(lambda: len(here.workers_started()) == 3, "one of them is started again")
                await coordinator.lines[INSTANCE].close()
                await wait_until(lambda: len(coordinator.hellos) == 3, "the first one's line is back")
                again = coordinator.hellos[-1]
                assert isinstance(again, NodeHello)
                assert again.worker_pid in before
                assert not coordinator.messages(WorkerExited)
                assert len(coordinator.messages(WorkerStarted)) == len(here.workers_started()) == 3
            await coordinator.stop()

    asyncio.run(scenario())


def test_the_log_of_each_worker_is_shipped_under_its_own_name() -> None:
    identity = Identity(INSTANCE, "10.0.0.1", "us-east-1", "demo", base=False, master=False, tags={})
    config = json.dumps(agent_config(identity, "job-1", Layout(Path("/")), 2))
    assert f"demo/job-1/{INSTANCE}/worker-1" in config
    assert "worker-1.log" in config
    assert "worker-2" not in config
