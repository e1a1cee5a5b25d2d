"""A node and its coordinator: found when it comes back, refused, impersonated; and what is kept of its secrets."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from dyntrain.controller.contract.messages import ControlFile
from node_coordinator import dead_endpoint, start_coordinator, training_node
from node_fakes import TOKEN, living, processes_of, wait_until, world


def test_n5_signal_is_kept_while_the_coordinator_is_down(tmp_path: Path) -> None:
    """The address in SSM is that of a dead coordinator: the node waits, and the next coordinator learns all from its
    hello.
    """

    async def scenario() -> None:
        with world(tmp_path) as here:
            here.configure(liveness_seconds=7.0)
            here.publish(dead_endpoint(), token="an earlier token")
            async with living(here.dependencies()):
                await wait_until(lambda: "no connection to the coordinator" in here.logged(), "the failure is logged")
                coordinator = await start_coordinator(tmp_path)
                here.publish(coordinator.endpoint)
                await wait_until(lambda: coordinator.hellos, "the new coordinator is found")
                pid = (await wait_until(here.workers_started, "the worker is started"))[0]["pid"]
                await coordinator.stop()

                second = await start_coordinator(tmp_path)
                here.publish(second.endpoint, token=TOKEN)
                await wait_until(lambda: second.hellos, "the node signals the coordinator that came back")
                assert second.hellos[0].worker_pid == pid
                assert len(here.workers_started()) == 1  # the worker survives its coordinator
                assert second.endpoint is not None
                url, file = second.endpoint.url, here.layout.control_file
                await wait_until(
                    lambda: ControlFile.model_validate_json(file.read_text()).url == url, "the worker can find it too"
                )
                # else it would look for another time
                assert ControlFile.model_validate_json(file.read_text()).liveness_seconds == 7.0
                await second.stop()

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_n6_refused_token_is_logged_and_retried(tmp_path: Path) -> None:
    """A node with an old token must not train, must say so, must not hammer, and must get in once the token is right;
    no secret in any log.
    """

    async def scenario() -> str:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint, token="a-wrong-token-that-is-secret-too")
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.refusals >= 2, "the node tries again")
                assert here.workers_started() == []
                here.publish(coordinator.endpoint)
                await wait_until(here.workers_started, "the right token lets it in")
            await coordinator.stop()
            return here.logged()

    logged = asyncio.run(scenario())
    assert "refused this node: wrong token" in logged
    assert TOKEN not in logged
    assert "a-wrong-token" not in logged


def test_n6_wrong_certificate_is_not_trusted(tmp_path: Path) -> None:
    """Somebody else at the coordinator's address must not learn the token."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            assert coordinator.endpoint is not None
            here.publish(coordinator.endpoint.model_copy(update={"certificate": dead_endpoint().certificate}))
            async with living(here.dependencies()):
                await wait_until(lambda: "certificate" in here.logged(), "the failure is logged")
                strangers = len(coordinator.hellos) + coordinator.refusals
                here.publish(coordinator.endpoint)
                await wait_until(lambda: coordinator.hellos, "with the right certificate it connects")
            await coordinator.stop()
            return strangers

    assert asyncio.run(scenario()) == 0


def test_control_file_is_for_the_owner_only(tmp_path: Path) -> None:
    """It holds the token in the clear."""

    async def scenario() -> tuple[int, str]:
        async with training_node(tmp_path) as (here, _, _):
            path = here.layout.control_file
            mode, token = (
                stat.S_IMODE(path.stat().st_mode),
                ControlFile.model_validate_json(path.read_text()).token.get_secret_value(),
            )
        assert TOKEN not in here.logged()
        return mode, token

    assert asyncio.run(scenario()) == (0o600, TOKEN)
