"""A node from its first breath to its retirement, against a coordinator, a metadata service and ports made by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from node_coordinator import start_coordinator, training_node
from node_fakes import INSTANCE, living, processes_of, wait_until, world

from controller.contract import parameter
from node_bootstrap.node import CONFIGURATION, RETIRED, TRY_AGAIN, run_node
from training.protocol import Listed, NodeNotice


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


def test_n7_spot_notice_reaches_coordinator_and_controller(tmp_path: Path) -> None:
    """Two minutes are enough to leave at a boundary only if both are told at once; a coordinator that comes later is told too."""

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, _):
            here.metadata.values["meta-data/spot/instance-action"] = json.dumps({"action": "terminate", "time": "2030-01-01T00:00:00Z"})
            notice = (await wait_until(lambda: coordinator.said(NodeNotice), "the coordinator is told"))[0]
            await wait_until(lambda: "interrupted" in here.reports.outcomes(), "the controller is told")
            report = here.reports.sent[-1]
            assert notice == NodeNotice(kind="spot-terminate", deadline=1893456000.0)
            assert (report.outcome, report.deadline) == ("interrupted", 1893456000.0)
            await coordinator.present.close()  # type: ignore[union-attr]
            await wait_until(lambda: len(coordinator.said(NodeNotice)) == 2, "told again on the next connection")

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
