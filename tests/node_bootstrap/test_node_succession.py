"""T21, the nodes' part: the base node that is nominated runs the coordinator, once it has none; nobody else does."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import Target, parameter
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.node import RETIRED
from dyntrain.node_bootstrap.supervision.master import nominated_term
from node_coordinator import FakeCoordinator, start_coordinator
from node_fakes import BASE_TAGS, INSTANCE, MASTER_TAGS, World, living, processes_of, wait_until, world

OTHER = "i-0aaaaaaaaaaaaaaa1"
RECORDING = """
import sys, time
with open({calls!r}, "a") as file:
    file.write(sys.argv[sys.argv.index("--term") + 1] + chr(10))
time.sleep(600)
"""
CRASHING = RECORDING.replace("time.sleep(600)", "sys.exit(75)")


@pytest.mark.parametrize(
    ("master", "term", "named", "expected"),
    [
        (True, 0, None, 0),
        (False, 0, None, None),
        (False, 7, INSTANCE, 7),
        (True, 7, INSTANCE, 7),
        (True, 7, OTHER, None),
        (True, 7, None, None),
    ],
)
def test_t21_exactly_the_nominated_node_runs_the_coordinator(
    master: bool, term: int, named: str | None, expected: int | None
) -> None:
    """A machine with the master's tag that boots later must not begin a second coordinator."""
    identity = Identity(INSTANCE, "10.0.0.1", "eu-west-1", "demo", base=True, master=master, tags={})
    target = Target.of(1, ()).model_copy(update={"coordinator": named, "term": term})
    assert nominated_term(target, identity) == expected
    assert term > 0 or nominated_term(None, identity) == expected


def base(here: World, program: str = RECORDING) -> Path:
    """A base node whose blanks never get ready; returns the file with the terms in which its coordinator was
    started.
    """
    calls, script = here.directory / "terms", here.directory / "coordinator.py"
    script.write_text(program.format(calls=str(calls)))
    here.coordinator = (sys.executable, str(script))
    here.blank = (sys.executable, "-c", "import time; time.sleep(600)")
    here.timing = replace(here.timing, nomination_check_seconds=0.05)
    return calls


def nominate(here: World, instance: str | None, term: int) -> None:
    target = Target.of(term, ()).model_copy(update={"coordinator": instance, "term": term})
    here.parameters.values[parameter("demo", "target")] = target.model_dump_json()


def started(calls: Path) -> list[str]:
    return calls.read_text().split() if calls.exists() else []


async def coordinated(here: World) -> FakeCoordinator:
    coordinator = await start_coordinator(here.directory)
    here.publish(coordinator.endpoint)
    return coordinator


def test_t21_a_nominated_node_takes_over_once_its_coordinator_is_gone(tmp_path: Path) -> None:
    """While the coordinator answers, a nomination moves nothing: reports may only be lost on their way to the
    controller.
    """

    async def scenario() -> list[str]:
        with world(tmp_path, **BASE_TAGS) as here:
            calls = base(here)
            coordinator = await coordinated(here)
            nominate(here, OTHER, 5)
            async with living(here.dependencies()):
                await wait_until(here.workers_started, "the node is welcomed")
                nominate(here, INSTANCE, 6)
                reads = here.parameters.reads
                await asyncio.sleep(0.5)  # the time of several looks
                assert (started(calls), here.parameters.reads) == ([], reads), (
                    "nobody even looks while a coordinator answers"
                )
                await coordinator.stop()
                await wait_until(lambda: started(calls), "the coordinator is started here")
            return started(calls)

    assert asyncio.run(scenario()) == ["6"]
    assert processes_of(tmp_path) == []


def test_t21_a_node_that_is_not_nominated_waits_for_whoever_is(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        with world(tmp_path, **MASTER_TAGS) as here:
            calls = base(here)
            nominate(here, OTHER, 5)
            async with living(here.dependencies()):
                await wait_until(
                    lambda: "no coordinator of cluster demo" in here.logged(), "it looks for the coordinator"
                )
                here.parameters.down = True
                await wait_until(lambda: "the test says so" in here.logged(), "an unreadable target is no nomination")
                here.parameters.down = False
                before = started(calls)
                coordinator = await coordinated(here)
                await wait_until(here.workers_started, "it trains under the coordinator that another node runs")
                await coordinator.stop()
            return [*before, *started(calls)]

    assert asyncio.run(scenario()) == []


def test_t21_a_coordinator_that_was_overtaken_is_started_again_only_in_a_new_term(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        with world(tmp_path, **BASE_TAGS) as here:
            calls = base(here, CRASHING)
            nominate(here, INSTANCE, 5)
            async with living(here.dependencies()):
                await wait_until(lambda: started(calls), "it runs in its term")
                nominate(here, OTHER, 6)
                await wait_until(
                    lambda: len(here.logged().split("it is started again")) > len(started(calls)),
                    "the last one has ended",
                )
                nominate(here, INSTANCE, 7)
                await wait_until(lambda: "7" in started(calls), "it runs in the new term")
            return started(calls)

    terms = asyncio.run(scenario())
    assert set(terms) == {"5", "7"}


def test_t21_an_outage_of_the_parameter_store_does_not_keep_a_dead_coordinator_down(tmp_path: Path) -> None:
    """A job that trains needs no SSM: whether its node still holds it is written on the volume."""

    async def scenario() -> int:
        with world(tmp_path, **BASE_TAGS) as here:
            calls = base(here, CRASHING)
            nominate(here, INSTANCE, 5)
            async with living(here.dependencies()):
                await wait_until(lambda: started(calls), "it runs in its term")
                here.parameters.down = True
                before = len(started(calls))
                await wait_until(lambda: len(started(calls)) > before + 1, "it is started again and again")
            return len(set(started(calls)))

    assert asyncio.run(scenario()) == 1


def test_t21_a_retired_node_takes_nothing_over(tmp_path: Path) -> None:
    """The coordinator ends with the job: a node that was nominated meanwhile must not begin the job anew."""

    async def scenario() -> tuple[int, list[str]]:
        with world(tmp_path, **BASE_TAGS) as here:
            calls = base(here)
            coordinator = await coordinated(here)
            nominate(here, OTHER, 5)
            async with living(here.dependencies(finish_seconds=1.0)) as node:
                await wait_until(here.workers_started, "the node is welcomed")
                nominate(here, INSTANCE, 6)
                await coordinator.retire()
                await coordinator.stop()
                return await node, started(calls)

    code, terms = asyncio.run(scenario())
    assert (code, terms) == (RETIRED, [])
