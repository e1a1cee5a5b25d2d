"""A node from its first breath to its retirement, against a coordinator, a metadata service and ports made by hand."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

from node_coordinator import dead_endpoint, start_coordinator
from node_fakes import INSTANCE, TOKEN, alive, living, processes_of, wait_until, world

from controller.contract import ControlFile, parameter
from node_bootstrap.node import CONFIGURATION, RETIRED, TRY_AGAIN, run_node
from node_bootstrap.pacing import Backoff
from training.protocol import Listed, NodeNotice, RestartWorker, WorkerExited


def test_whole_life_from_preparation_to_retirement(tmp_path: Path) -> None:
    """Prepare, marker, report until listed, hello with the token, worker, retire: exit code 0 and nothing left on the host."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path, listed=False)
            here.configure(prepare_script=here.script("print('made the data')"))
            async with living(here.setting()) as node:
                await wait_until(lambda: len(here.reports.sent) >= 2, "an unlisted node repeats its report")
                assert {report.outcome for report in here.reports.sent} == {"prepared"}
                assert len({report.at for report in here.reports.sent}) == 1  # a repetition is not news
                assert json.loads((here.mount / "prepare_data_success_127.0.0.1").read_text())["instance_id"] == INSTANCE
                assert here.workers_started() == []  # nobody trains before a coordinator is there

                here.publish(coordinator.endpoint)
                started = (await wait_until(here.workers_started, "the worker is started"))[0]
                assert started == {**started, "cwd": str(here.mount), "elastic": "1", "mount": str(here.mount), "job": "job-1"}
                hello = coordinator.hellos[0]
                assert (hello.instance_id, hello.attempt, hello.base, hello.worker_pid) == (INSTANCE, 1, False, None)

                await coordinator.send(Listed(listed=True))
                await coordinator.retire()
                assert await node == RETIRED
            await coordinator.stop()
            assert processes_of(tmp_path) == []
            sent = len(here.reports.sent)
            assert sent == len([r for r in here.reports.sent if r.attempt == 1])

    asyncio.run(scenario())


def test_report_stops_once_the_node_is_listed(tmp_path: Path) -> None:
    """A node that goes on reporting costs a write a minute for ever; one that stops too early is never seen (C35)."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path, listed=True)
            here.publish(coordinator.endpoint)
            async with living(here.setting()):
                await wait_until(here.workers_started, "the worker is started")
                await asyncio.sleep(0)
                sent = len(here.reports.sent)
                await asyncio.sleep(0.6)  # the time of several repetitions
                after = len(here.reports.sent) - sent
                await coordinator.send(Listed(listed=False))
                await wait_until(lambda: len(here.reports.sent) > sent + after, "a node that is taken off the list reports again")
            await coordinator.stop()
            return after

    assert asyncio.run(scenario()) <= 1


def test_n5_signal_is_kept_while_the_coordinator_is_down(tmp_path: Path) -> None:
    """The address in SSM is that of a dead coordinator: the node waits, and the next coordinator learns all from its hello."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            here.publish(dead_endpoint(), token="an earlier token")
            async with living(here.setting()):
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
                url = second.endpoint.url
                await wait_until(
                    lambda: ControlFile.model_validate_json(here.layout.control_file.read_text()).url == url, "the worker can find it too"
                )
                await second.stop()

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_n6_refused_token_is_logged_and_retried(tmp_path: Path) -> None:
    """A node with an old token must not train, must say so, must not hammer, and must get in once the token is right; no secret in any log."""

    async def scenario() -> str:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint, token="a-wrong-token-that-is-secret-too")
            async with living(here.setting()):
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
            async with living(here.setting()):
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
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting()):
                await wait_until(here.workers_started, "the worker is started")
                path = here.layout.control_file
                mode, token = stat.S_IMODE(path.stat().st_mode), ControlFile.model_validate_json(path.read_text()).token.get_secret_value()
            await coordinator.stop()
            assert TOKEN not in here.logged()
            return mode, token

    assert asyncio.run(scenario()) == (0o600, TOKEN)


def test_n8_crash_is_told_and_the_coordinator_decides(tmp_path: Path) -> None:
    """A worker restarted behind the coordinator's back would disturb the recovery; an order about an earlier process is void."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting()):
                first = (await wait_until(here.workers_started, "the worker is started"))[0]["pid"]
                (here.mount / "crash").touch()
                exited = (await wait_until(lambda: coordinator.said(WorkerExited), "the crash is told"))[0]
                assert (exited.pid, exited.code) == (first, 3)
                assert "the worker says why" in exited.reason
                (here.mount / "crash").unlink()
                assert len(here.workers_started()) == 1

                await coordinator.send(RestartWorker(pid=first, reason="again"))
                second = (await wait_until(lambda: here.workers_started()[1:], "it is restarted by order"))[0]["pid"]
                await coordinator.send(RestartWorker(pid=first, reason="an old order"))
                await wait_until(lambda: "ignored an order" in here.logged(), "the old order is handled")
                assert alive(second)

                await coordinator.send(RestartWorker(pid=second, reason="killed by order"))
                third = (await wait_until(lambda: here.workers_started()[2:], "a running worker is replaced by order"))[0]["pid"]
                assert not alive(second)
                await coordinator.present.close()  # type: ignore[union-attr]
                await wait_until(lambda: len(coordinator.hellos) == 2, "the node reconnects")
                assert coordinator.hellos[1].worker_pid == third
            await coordinator.stop()

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_n8_crash_that_nobody_heard_of_is_told_again(tmp_path: Path) -> None:
    """The connection broke while the crash was being told: without repetition the worker would wait for ever."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting(own_restart=Backoff(30.0, 30.0))):
                await wait_until(here.workers_started, "the worker is started")
                (here.mount / "crash").touch()
                await wait_until(lambda: coordinator.said(WorkerExited), "the crash is told")
                await coordinator.present.close()  # type: ignore[union-attr]
                await wait_until(lambda: len(coordinator.said(WorkerExited)) >= 2, "it is told again")
            await coordinator.stop()
            first, second = coordinator.said(WorkerExited)[:2]
            assert first == second

    asyncio.run(scenario())


def test_n8_worker_that_crashes_without_a_coordinator_is_restarted_then_reported(tmp_path: Path) -> None:
    """Restarted with backoff while nobody can be asked; after the budget the controller hears worker_failed, and it stops."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting()) as node:
                await wait_until(here.workers_started, "the worker is started")
                await coordinator.stop()
                (here.mount / "crash").touch()
                await wait_until(lambda: "worker_failed" in here.reports.outcomes(), "the node gives up")
                assert len(here.workers_started()) == 1 + 2  # the budget of this test is two
                assert not node.done()  # the node waits to be terminated
                reason = next(report.reason for report in here.reports.sent if report.outcome == "worker_failed")
                assert "crashed too often" in reason
                assert "the worker says why" in reason

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_worker_that_was_let_go_is_not_a_crash(tmp_path: Path) -> None:
    """Exit code 0 after Leave: no alarm, no restart, retirement follows."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting()) as node:
                await wait_until(here.workers_started, "the worker is started")
                (here.mount / "leave").touch()
                await wait_until(lambda: "the worker left" in here.logged(), "its end is seen")
                await coordinator.retire()
                assert await node == RETIRED
            await coordinator.stop()
            assert coordinator.said(WorkerExited) == []
            assert len(here.workers_started()) == 1

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_another_job_gets_a_worker_of_its_own(tmp_path: Path) -> None:
    """A worker of the job before holds that job's state and address: it can never join, and would keep the node's place."""

    async def scenario() -> list[str]:
        with world(tmp_path) as here:
            first = await start_coordinator(tmp_path)
            here.publish(first.endpoint)
            async with living(here.setting()):
                old = (await wait_until(here.workers_started, "the worker is started"))[0]["pid"]
                await first.stop()
                second = await start_coordinator(tmp_path, job="job-2")
                here.publish(second.endpoint)
                await wait_until(lambda: len(here.workers_started()) == 2, "the new job's worker is started")
                assert not alive(old)
            await second.stop()
            return [entry["job"] for entry in here.workers_started()]

    assert asyncio.run(scenario()) == ["job-1", "job-2"]


def test_n7_spot_notice_reaches_coordinator_and_controller(tmp_path: Path) -> None:
    """Two minutes are enough to leave at a boundary only if both are told at once; a coordinator that comes later is told too."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.setting()):
                await wait_until(here.workers_started, "the worker is started")
                here.metadata.values["meta-data/spot/instance-action"] = json.dumps({"action": "terminate", "time": "2030-01-01T00:00:00Z"})
                notice = (await wait_until(lambda: coordinator.said(NodeNotice), "the coordinator is told"))[0]
                await wait_until(lambda: "interrupted" in here.reports.outcomes(), "the controller is told")
                report = here.reports.sent[-1]
                assert notice == NodeNotice(kind="spot-terminate", deadline=1893456000.0)
                assert (report.outcome, report.deadline) == ("interrupted", 1893456000.0)
                await coordinator.present.close()  # type: ignore[union-attr]
                await wait_until(lambda: len(coordinator.said(NodeNotice)) == 2, "told again on the next connection")
            await coordinator.stop()

    asyncio.run(scenario())


def test_prepare_failed_node_waits_without_a_worker(tmp_path: Path) -> None:
    """It must not train, must say why, and must not end: the controller decides when it is terminated."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script("import sys; print('no space on the volume'); sys.exit(9)"), prepare_attempts=2)
            async with living(here.setting()) as node:
                await wait_until(lambda: len(here.reports.sent) >= 2, "the failure is reported again and again")
                assert not node.done()
            await coordinator.stop()
            assert here.reports.outcomes() == {"prepare_failed"}
            assert "exit code 9" in here.reports.sent[0].reason
            assert "no space on the volume" in here.reports.sent[0].reason
            assert here.workers_started() == []
            assert coordinator.hellos == []

    asyncio.run(scenario())


def test_restart_of_the_bootstrap_continues(tmp_path: Path) -> None:
    """A second life of the same instance: prepare-data does not run again, the attempt has grown, the worker comes back."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"))
            async with living(here.setting()):
                await wait_until(lambda: len(here.workers_started()) == 1, "the worker is started")
            async with living(here.setting()):
                await wait_until(lambda: len(here.workers_started()) == 2, "the worker is started again")
            await coordinator.stop()
            assert (tmp_path / "runs").read_text() == "x"
            assert [hello.attempt for hello in coordinator.hellos] == [1, 2]

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_bad_configuration_ends_with_an_error_that_names_the_field(tmp_path: Path) -> None:
    """Trying again cannot help; a person must find the field."""
    with world(tmp_path) as here:
        here.configure(prepare_attempts=0, servers_per_base="many")
        code = asyncio.run(run_node(here.setting()))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "field prepare_attempts" in logged
    assert "field servers_per_base" in logged


def test_unknown_cluster_is_an_error_after_bounded_tries(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        del here.parameters.values[parameter("demo", "node")]
        code = asyncio.run(run_node(here.setting()))
        logged = here.logged()
    assert code == TRY_AGAIN
    assert "the parameter /dyntrain/demo/node does not exist" in logged


def test_missing_volume_is_an_error_after_bounded_tries(tmp_path: Path) -> None:
    """Without this the marker and the data would go to the root disk of the instance."""
    with world(tmp_path) as here:
        here.configure(mount=str(tmp_path / "nowhere"))
        code = asyncio.run(run_node(here.setting()))
        logged = here.logged()
    assert code == TRY_AGAIN
    assert "nowhere is not there" in logged


def test_log_lines_are_json_with_cluster_instance_and_attempt(tmp_path: Path) -> None:
    """Without them one cannot search the logs of many nodes."""

    async def scenario() -> str:
        with world(tmp_path) as here:
            async with living(here.setting()):
                await wait_until(lambda: here.reports.sent, "the node is prepared")
            return here.layout.node_log.read_text()

    lines = [json.loads(line) for line in asyncio.run(scenario()).splitlines()]
    prepared = next(line for line in lines if line["message"] == "prepared")
    assert (prepared["cluster"], prepared["instance"], prepared["attempt"]) == ("demo", INSTANCE, 1)
