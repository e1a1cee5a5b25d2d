"""The ps-lite processes of a base node: kept ready, handed out, watched, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.processes import Children, Program
from dyntrain.node_bootstrap.node import RETIRED
from dyntrain.node_bootstrap.supervision.group import PORTS, PsGroup, free_port
from dyntrain.training.protocol.node_messages import (
    GroupFailed,
    GroupReady,
    PsProcess,
    StartGroup,
    StopGroup,
)
from dyntrain.training.protocol.wire import FromNode
from node_blanks import FORKS, base_world, roles
from node_coordinator import start_coordinator
from node_fakes import BASE_TAGS, World, alive, living, processes_of, wait_until, world


def start(generation: int, *kinds: str) -> StartGroup:
    return StartGroup(
        generation=generation,
        processes=tuple(
            PsProcess.model_validate({"role": kind, "environment": {"DMLC_NUM_WORKER": "2"}}) for kind in kinds
        ),
    )


def parents_of(directory: Path) -> set[int]:
    """Of all processes that were started for this test."""
    return {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in processes_of(directory)}


def end(here: World, pid: object, code: int) -> None:
    path = here.directory / f"end-{pid}"
    path.with_suffix(".new").write_text(str(code))
    path.with_suffix(".new").rename(path)


def test_group_is_offered_used_and_offered_again(tmp_path: Path) -> None:
    """Blanks must be ready before the boundary: a generation that waits for their import stops the job for seconds."""

    async def scenario() -> None:
        with world(tmp_path, **BASE_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies()) as node:
                offer = (await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered"))[-1]
                assert offer.blanks >= 2
                assert offer.scheduler_port in PORTS
                await coordinator.send(start(1, "scheduler", "server"))
                given = await wait_until(
                    lambda: roles(here) if len(roles(here)) == 2 else None, "both roles are handed out"
                )
                assert sorted(entry["role"] for entry in given) == ["scheduler", "server"]
                assert given[0]["environment"] == {"DMLC_NUM_WORKER": "2"}
                # else a server listens on whatever interface ps-lite finds first
                assert {entry["host"] for entry in given} == {"127.0.0.1"}
                again = (await wait_until(lambda: coordinator.messages(GroupReady)[1:], "the next group is offered"))[
                    -1
                ]
                assert again.blanks >= 2

                await coordinator.send(start(1, "scheduler", "server"))  # delivered twice
                await wait_until(lambda: "ignored an order to start" in here.logged(), "the repetition is handled")
                await coordinator.send(StopGroup(generation=1))
                await wait_until(
                    lambda: not any(alive(int(str(entry["pid"]))) for entry in given), "the old group is killed"
                )
                await coordinator.retire()
                assert await node == RETIRED
            await coordinator.stop()
            assert len(roles(here)) == 2
            assert coordinator.messages(GroupFailed) == []

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_mxnet_is_imported_once_for_all_generations(tmp_path: Path) -> None:
    """Each import takes seconds of a processor from the workers: a loss soon after a change would wait for it with all
    survivors.
    """

    async def scenario() -> tuple[set[object], int]:
        with world(tmp_path, **BASE_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
                for generation in (1, 2, 3):
                    await coordinator.send(start(generation, "scheduler", "server"))
                    await wait_until(
                        lambda count=2 * generation: len(roles(here)) == count, f"generation {generation} has its roles"
                    )  # type: ignore[misc]
            await coordinator.stop()
            return {entry["server"] for entry in roles(here)}, here.logged().count('"child": "ps-lite"')

    servers, started = asyncio.run(scenario())
    assert len(servers) == 1
    assert started == 1


def test_death_of_the_fork_server_is_told_and_mended(tmp_path: Path) -> None:
    """It takes the servers of the live generation along: workers would hang, and no further generation could be
    formed.
    """

    async def scenario() -> tuple[list[GroupFailed], set[object]]:
        with world(tmp_path, **BASE_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
                await coordinator.send(start(1, "scheduler", "server"))
                given = await wait_until(
                    lambda: roles(here) if len(roles(here)) == 2 else None, "both roles are handed out"
                )
                os.kill(int(str(given[0]["server"])), signal.SIGKILL)
                failed = await wait_until(lambda: coordinator.messages(GroupFailed), "the loss is told")
                await wait_until(
                    lambda: not any(alive(int(str(entry["pid"]))) for entry in given), "nobody outlives the server"
                )
                await coordinator.send(StopGroup(generation=1))
                await coordinator.send(start(2, "scheduler", "server"))
                await wait_until(lambda: len(roles(here)) == 4, "the next generation has its roles")
            await coordinator.stop()
            return list(failed), {entry["server"] for entry in roles(here)}

    failed, servers = asyncio.run(scenario())
    assert failed[0].generation == 1
    assert len(servers) == 2
    assert processes_of(tmp_path) == []


def test_frozen_fork_server_is_replaced(tmp_path: Path) -> None:
    """A server that does not answer would leave the job without a group for ever."""

    async def scenario() -> set[object]:
        with world(tmp_path, **BASE_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies(blank_start_seconds=5.0)):
                await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
                await coordinator.send(start(1, "scheduler"))
                given = await wait_until(lambda: roles(here), "the role is handed out")
                os.kill(int(str(given[0]["server"])), signal.SIGSTOP)
                for generation in range(2, 6):  # more than are kept
                    await coordinator.send(start(generation, "scheduler"))
                await wait_until(lambda: "does not answer" in here.logged(), "the frozen server is noticed")
                await coordinator.send(StopGroup(generation=5))
                await coordinator.send(start(6, "scheduler"))
                await wait_until(
                    lambda: any(entry["server"] != given[0]["server"] for entry in roles(here)), "another serves"
                )
            await coordinator.stop()
            return {entry["server"] for entry in roles(here)}

    assert len(asyncio.run(scenario())) == 2
    assert processes_of(tmp_path) == []


def test_dead_server_of_a_live_generation_is_told(tmp_path: Path) -> None:
    """Workers would hang inside ps-lite: nobody else can see that death."""

    async def scenario() -> list[GroupFailed]:
        with world(tmp_path, **BASE_TAGS) as here:
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
                await coordinator.send(start(3, "scheduler", "server"))
                given = await wait_until(
                    lambda: roles(here) if len(roles(here)) == 2 else None, "both roles are handed out"
                )
                pids = {entry["role"]: entry["pid"] for entry in given}  # which of the two is there first is chance
                end(here, pids["scheduler"], 0)  # the workers left in good order
                end(here, pids["server"], 11)
                failed = await wait_until(lambda: coordinator.messages(GroupFailed), "the death is told")
                await coordinator.present.close()  # type: ignore[union-attr]
                await wait_until(
                    lambda: len(coordinator.messages(GroupFailed)) == 2, "and told again on the next connection"
                )
                await coordinator.send(StopGroup(generation=3))
                await coordinator.send(start(2, "server"))
                await wait_until(
                    lambda: "ignored an order to start" in here.logged(),
                    "an order for an earlier generation is handled",
                )
            await coordinator.stop()
            assert len(roles(here)) == 2
            return list(failed)

    failed = asyncio.run(scenario())
    assert failed[0].generation == 3
    assert "server ended" in failed[0].reason


def test_roles_wait_for_slow_blanks(tmp_path: Path) -> None:
    """After a restart the blanks may still import when the order comes: it must reach them all the same, and more than
    are kept are started.
    """

    async def scenario() -> list[str]:
        with world(tmp_path, **BASE_TAGS) as here:
            (tmp_path / "slow").write_text("0.5")
            coordinator = await start_coordinator(tmp_path)
            base_world(here).publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.hellos, "the node signals")
                await coordinator.send(start(1, "scheduler", "server", "server"))
                given = await wait_until(
                    lambda: roles(here) if len(roles(here)) == 3 else None, "all roles are handed out"
                )
            await coordinator.stop()
            assert coordinator.messages(GroupFailed) == []
            return sorted(str(entry["role"]) for entry in given)

    assert asyncio.run(scenario()) == ["scheduler", "server", "server"]


def test_blanks_that_cannot_start_do_not_spin(tmp_path: Path) -> None:
    """A broken mxnet must show in the log, and leave the machine usable."""

    async def scenario() -> int:
        with world(tmp_path, **BASE_TAGS) as here:
            here.blank = (sys.executable, "-c", "raise SystemExit('no mxnet here')")
            async with living(here.dependencies()):
                await wait_until(
                    lambda: (
                        "no mxnet here" in here.layout.node_log.read_text() if here.layout.node_log.exists() else False
                    ),
                    "logged",
                )
                began, before = time.monotonic(), here.logged().count('"message": "started"')
                await wait_until(lambda: time.monotonic() - began > 1.0, "a second")
                return here.logged().count('"message": "started"') - before

    assert asyncio.run(scenario()) <= 25  # two blanks, a pause of at least 0.1 s each time


def test_port_is_one_that_nobody_listens_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = free_port("127.0.0.1")
        assert port in PORTS
        assert port != taken.getsockname()[1]


def test_used_blanks_are_replaced_when_the_new_group_stands(tmp_path: Path) -> None:
    """What is started while the survivors form the next generation makes their pause longer."""

    async def scenario() -> tuple[int, int]:
        root = tmp_path / "blank.py"
        root.write_text(FORKS)
        messages: list[FromNode] = []
        children = Children(str(tmp_path / "scope"), 1)
        program = Program((sys.executable, str(root), str(tmp_path)), {}, tmp_path / "log")
        group = PsGroup(
            program,
            2,
            "127.0.0.1",
            children,
            lambda message: messages.append(message) is None,
            Timing(group_formation_seconds=3600.0),
        )
        running = asyncio.create_task(group.run())
        try:
            await wait_until(
                lambda: [m for m in messages if isinstance(m, GroupReady) and m.blanks == 4],
                "blanks and spares are ready",
            )
            await group.start(start(1, "scheduler", "server"))
            await asyncio.sleep(0.3)  # in which a fork would come
            while_forming = len(processes_of(tmp_path))
            # of the generation before, which is what the coordinator orders once the new one is formed
            await group.stop(0)
            messages.clear()
            await wait_until(
                lambda: [m for m in messages if isinstance(m, GroupReady) and m.blanks == 4], "they are replaced"
            )
            return while_forming, len(processes_of(tmp_path))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await group.stop_all()

    assert asyncio.run(scenario()) == (5, 7)  # with the server
    assert processes_of(tmp_path) == []


def test_an_order_that_comes_while_the_server_is_started_starts_no_second_one(tmp_path: Path) -> None:
    """Nobody would know of it: it would keep its memory for as long as the node lives."""

    async def scenario() -> set[object]:
        with world(tmp_path) as here:
            program = Program(base_world(here).blank, {}, tmp_path / "log")
            group = PsGroup(
                program, 2, "127.0.0.1", Children(str(tmp_path / "scope"), 1), lambda message: True, Timing()
            )
            running = asyncio.create_task(group.run())
            try:
                await asyncio.sleep(0)  # it begins
                await group.start(start(1, "scheduler", "server"))
                given = await wait_until(
                    lambda: roles(here) if len(roles(here)) == 2 else None, "the roles are handed out"
                )
                await wait_until(
                    lambda: any(isinstance(message, GroupReady) for message in group.state()),
                    "the next group can be offered",
                )
                return {entry["server"] for entry in given} | set(parents_of(tmp_path) - {os.getpid()})
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await group.stop_all()

    assert len(asyncio.run(scenario())) == 1
    assert processes_of(tmp_path) == []
