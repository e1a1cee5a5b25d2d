"""The master's coordinator: started again, waited for, stopped."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.node import RETIRED
from node_blanks import base_world
from node_coordinator import start_coordinator
from node_fakes import MASTER_TAGS, World, living, processes_of, wait_until, world


def master_program(here: World, text: str) -> None:
    path = here.directory / "coordinator.py"
    path.write_text(text)
    here.coordinator = (sys.executable, str(path))


def test_t17_master_restarts_its_coordinator(tmp_path: Path) -> None:
    """The death of the coordinator must cost seconds, not the job; its end is the end of the master's bootstrap."""

    async def scenario() -> list[str]:
        with world(tmp_path, **MASTER_TAGS) as here:
            base_world(here).configure(segment_steps=20, max_workers=5)
            calls = tmp_path / "calls"
            text = (
                f"import sys; f = open({str(calls)!r}, 'a+'); f.write(' '.join(sys.argv[1:]) + chr(10)); "
                "f.seek(0); sys.exit(len(f.readlines()) < 3)"
            )
            master_program(here, text)
            async with living(here.dependencies()) as node:
                assert await node == RETIRED
            return calls.read_text().splitlines()

    calls = asyncio.run(scenario())
    assert len(calls) == 3
    words = calls[0].split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options == {
        "--cluster": "demo",
        "--instance-id": "i-0123456789abcdef0",
        "--host": "127.0.0.1",
        "--mount": str(tmp_path / "shared"),
        "--num-workers": "1",
        "--min-workers": "1",
        "--max-workers": "5",
        "--segment-steps": "20",
        "--boundary": "epoch",
        "--term": "0",
        "--liveness-seconds": "20.0",
        "--progress-seconds": "600.0",
        "--pause-seconds": "3600.0",
        "--state-transfer": "encrypted",
        "--servers": "base",
    }
    assert processes_of(tmp_path) == []


def test_retired_master_waits_for_its_coordinator(tmp_path: Path) -> None:
    """The coordinator still has its last report to write: without it the controller would take the job for a silent
    one.
    """

    async def scenario() -> bool:
        with world(tmp_path, **MASTER_TAGS) as here:
            done = tmp_path / "wrote-its-last-report"
            go = tmp_path / "go"
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            text = f"""
import pathlib, time
while not pathlib.Path({str(go)!r}).exists():
    time.sleep(0.02)
time.sleep(0.5)
pathlib.Path({str(done)!r}).touch()
"""
            master_program(here, text)
            async with living(here.dependencies()) as node:
                await wait_until(here.workers_started, "the worker is started")
                await coordinator.retire()
                go.touch()
                assert await node == RETIRED
            await coordinator.stop()
            return done.exists()

    assert asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_a_retired_master_is_not_cut_off_while_the_results_are_uploaded(tmp_path: Path) -> None:
    """It has hung up itself. An alarm of a node that lost its coordinator would have a person look for nothing."""

    async def scenario() -> tuple[list[str], str]:
        with world(tmp_path, **MASTER_TAGS) as here:
            go = tmp_path / "go"
            coordinator = await start_coordinator(tmp_path)
            base_world(here).configure(isolation_seconds=0.2, output_location="s3://results/job")
            here.publish(coordinator.endpoint)
            master_program(
                here, f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)"
            )
            async with living(here.dependencies()) as node:
                await wait_until(here.workers_started, "the worker is started")
                await coordinator.retire()
                await wait_until(lambda: coordinator.present is None, "the node hangs up")
                await asyncio.sleep(0.8)  # the upload takes four times what a node that is cut off waits
                go.touch()
                assert await node == RETIRED
            await coordinator.stop()
            return [report.reason for report in here.reports.sent], here.logged()

    reasons, logged = asyncio.run(scenario())
    assert not [reason for reason in reasons if "no coordinator for" in reason]
    assert "no coordinator for" not in logged


def test_coordinator_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    """A retired master that waits for ever would be billed for ever."""

    async def scenario() -> int:
        with world(tmp_path, **MASTER_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            master_program(here, "import time; time.sleep(600)")
            async with living(here.dependencies(coordinator_exit_seconds=0.3)) as node:
                await wait_until(here.workers_started, "the worker is started")
                await coordinator.retire()
                async with asyncio.timeout(patient(10)):
                    code = await node
            await coordinator.stop()
            return code

    assert asyncio.run(scenario()) == RETIRED
    assert processes_of(tmp_path) == []
