"""A node of a cluster whose command a person launches: it waits, trains what is launched, and waits again."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dyntrain.node_bootstrap.supervision.launch_desk import working_directory_of
from dyntrain.training.protocol.launch_desk import MAX_LINE, EndQuestion, LaunchQuestion, Reply, ask, short_path
from dyntrain.training.protocol.node_messages import EndRequest, LaunchAnswer, Launched, LaunchRequest, WorkerStarted
from node_coordinator import FakeCoordinator, start_coordinator
from node_fakes import BASE_TAGS, World, alive, living, processes_of, wait_until, world


@asynccontextmanager
async def waiting_node(directory: Path) -> AsyncIterator[tuple[World, FakeCoordinator]]:
    with world(directory, **BASE_TAGS) as here:
        coordinator = await start_coordinator(directory)
        here.publish(coordinator.endpoint)
        here.configure(training_cmd=[])
        here.blank = here.coordinator = (sys.executable, "-c", "import time; time.sleep(600)")
        try:
            async with living(here.dependencies(blank_start_seconds=60.0)):
                await wait_until(lambda: coordinator.present, "the node is connected")
                yield here, coordinator
        finally:
            await coordinator.stop()


async def typed(here: World, *command: str, **more: object) -> Reply:
    """A launch as the terminal's program asks for it, before the coordinator has answered."""
    fields = {"request": "one", "directory": str(here.mount), "environment": {}, **more, "command": command}
    return await asyncio.to_thread(ask, here.layout.launch_socket, LaunchQuestion.model_validate(fields))


async def answer(coordinator: FakeCoordinator, number: int, refused: str = "") -> None:
    """To the launch with that number, counted from 1."""
    requests = await wait_until(lambda: coordinator.messages(LaunchRequest)[number - 1 :], "the coordinator is asked")
    request = requests[0].launch
    if not refused:
        await coordinator.send(Launched(launch=request))
    await coordinator.send(LaunchAnswer(request=request.request, job=coordinator.job, refused=refused))


def test_a_node_waits_for_a_launch_trains_it_and_waits_for_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with waiting_node(tmp_path) as (here, coordinator):
            script = str(tmp_path / "worker.py")
            (here.mount / "mine").mkdir()
            for number in (1, 2):
                reply = asyncio.create_task(typed(here, "python", script, directory=str(here.mount / "mine")))
                await answer(coordinator, number)
                assert (await reply).directory == str(here.mount / "mine")
                started = here.mount / "mine" / "workers.started"
                lines = await wait_until(
                    lambda started=started, number=number: (
                        started.exists() and len(started.read_text().splitlines()) == number and started.read_text()
                    ),
                    "the worker is started, by the node's own Python, where it was launched",
                )
                pid = json.loads(lines.splitlines()[-1])["pid"]
                await coordinator.send(Launched(launch=coordinator.messages(LaunchRequest)[-1].launch))
                (here.mount / "mine" / "leave").touch()
                await wait_until(lambda pid=pid: not alive(pid), "its script ends")
                (here.mount / "mine" / "leave").unlink()
                before = len(coordinator.hellos)
                await coordinator.retire()
                await wait_until(
                    lambda before=before: len(coordinator.hellos) > before, "the node is there for the next launch"
                )
                assert coordinator.hellos[-1].worker_pid is None
            assert len(coordinator.messages(WorkerStarted)) == 2
        assert here.reports.outcomes() == {"prepared"}

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_the_desk_is_for_the_group_alone_and_says_what_keeps_a_launch_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with waiting_node(tmp_path) as (here, coordinator):
            path = here.layout.launch_socket
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            assert (
                "DYNTRAIN_CONTROL_FILE" in (await typed(here, "x", environment={"DYNTRAIN_CONTROL_FILE": "/x"})).refused
            )
            assert coordinator.messages(LaunchRequest) == [], "it would be somebody else's worker"
            reply = asyncio.create_task(typed(here, "python", "x.py", directory="/home/anybody"))
            await answer(coordinator, 1, "one at a time")
            assert (await reply).refused == "one at a time"
            assert coordinator.messages(LaunchRequest)[0].launch.directory == str(here.mount)
            ending = asyncio.create_task(asyncio.to_thread(ask, path, EndQuestion(request="two")))
            await wait_until(lambda: coordinator.messages(EndRequest), "the coordinator is asked to end")
            await coordinator.send(LaunchAnswer(request="two", job=coordinator.job, refused="not in force"))
            assert (await ending).refused == "not in force"
            for nonsense in (b"\0\n", b"{}\n", b"never a whole line"):
                assert (
                    "did not understand"
                    in Reply.model_validate_json(await asyncio.to_thread(send_line, path, nonsense)).refused
                )
            with pytest.raises(ValueError, match="longer than 128 KiB"):
                await typed(here, "python", "x" * MAX_LINE)
            await coordinator.stop()
            await wait_until(lambda: not coordinator.present, "the coordinator is gone")
            gone = await typed(here, "python", "x.py")
            assert (gone.passing, "no connection to the coordinator" in gone.refused) == (True, True)

    asyncio.run(scenario())


def send_line(path: Path, text: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as line, short_path(path) as name:
        line.connect(name)
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        return line.makefile("rb").readline()


@pytest.mark.parametrize(
    ("directory", "place"),
    [
        ("/data/mine", "/data/mine"),
        ("/data", "/data"),
        ("/database", "/data"),
        ("/data/../etc", "/data"),
        ("mine", "/data"),
    ],
)
def test_a_job_runs_where_all_nodes_have_it(directory: str, place: str) -> None:
    assert working_directory_of(directory, "/data") == place
