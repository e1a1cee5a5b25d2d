"""A node from its first breath to its retirement, against a coordinator, a metadata service and ports made by hand."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import parameter
from dyntrain.node_bootstrap.core.marker import Marker, MarkerState
from dyntrain.node_bootstrap.node import CONFIGURATION, RETIRED, TRY_AGAIN, mark_prepared, run_node
from dyntrain.node_bootstrap.steps.prepare import marker_path, script_digest
from dyntrain.training.protocol.node_messages import Listed, NodeNotice, Workers
from node_coordinator import start_coordinator, training_node
from node_fakes import BASE_TAGS, INSTANCE, living, processes_of, wait_until, world


def test_whole_life_from_preparation_to_retirement(tmp_path: Path) -> None:
    """Prepare, marker, report until listed, hello with the token, worker, retire: exit code 0 and nothing left on the
    host.
    """

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path, listed=False)
            plain = "import sys\nassert 'dyntrain.training.dt_scripts.hook' not in sys.modules"
            here.configure(prepare_script=here.script(plain), dt_scripts=True)
            async with living(here.dependencies()) as node:
                await wait_until(lambda: len(here.reports.sent) >= 2, "an unlisted node repeats its report")
                assert {report.outcome for report in here.reports.sent} == {"prepared"}
                assert len({report.at for report in here.reports.sent}) == 1  # a repetition is not news
                assert (
                    json.loads((here.mount / "prepare_data_success_127.0.0.1").read_text())["instance_id"] == INSTANCE
                )
                assert here.workers_started() == []  # nobody trains before a coordinator is there

                here.publish(coordinator.endpoint)
                started = (await wait_until(here.workers_started, "the worker is started"))[0]
                assert started == {
                    **started,
                    "cwd": str(here.mount),
                    "elastic": "1",
                    "mount": str(here.mount),
                    "job": "job-1",
                    "faced": True,
                }
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


def test_the_workers_file_follows_the_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(lambda: coordinator.present, "the node is connected")
                assert here.layout.workers_file.read_text() == "127.0.0.1\n", "its own, as long as nobody tells more"
                for addresses in (("10.0.0.8", "127.0.0.1"), ("10.0.0.8", "10.0.0.9", "127.0.0.1")):
                    await coordinator.send(Workers(addresses=addresses))
                    wanted = "".join(f"{address}\n" for address in addresses)
                    await wait_until(
                        lambda wanted=wanted: here.layout.workers_file.read_text() == wanted, "it is written"
                    )
            await coordinator.stop()

    asyncio.run(scenario())


def test_report_stops_once_the_node_is_listed(tmp_path: Path) -> None:
    """A node that goes on reporting costs a write a minute for ever; one that stops too early is never seen (C35)."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path, listed=True)
            here.publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(here.workers_started, "the worker is started")
                await asyncio.sleep(0)
                sent = len(here.reports.sent)
                await asyncio.sleep(0.6)  # the time of several repetitions
                after = len(here.reports.sent) - sent
                await coordinator.send(Listed(listed=False))
                await wait_until(
                    lambda: len(here.reports.sent) > sent + after, "a node that is taken off the list reports again"
                )
            await coordinator.stop()
            return after

    assert asyncio.run(scenario()) <= 1


def test_n7_spot_notice_reaches_coordinator_and_controller(tmp_path: Path) -> None:
    """Two minutes are enough to leave at a boundary only if both are told at once; a coordinator that comes later is
    told too.
    """

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, _):
            here.metadata.values["meta-data/spot/instance-action"] = json.dumps(
                {"action": "terminate", "time": "2030-01-01T00:00:00Z"}
            )
            notice = (await wait_until(lambda: coordinator.messages(NodeNotice), "the coordinator is told"))[0]
            await wait_until(lambda: "interrupted" in here.reports.outcomes(), "the controller is told")
            report = here.reports.sent[-1]
            assert notice == NodeNotice(kind="spot-terminate", deadline=1893456000.0)
            assert (report.outcome, report.deadline) == ("interrupted", 1893456000.0)
            await coordinator.present.close()  # type: ignore[union-attr]
            await wait_until(lambda: len(coordinator.messages(NodeNotice)) == 2, "told again on the next connection")

    asyncio.run(scenario())


def test_prepare_failed_node_waits_without_a_worker(tmp_path: Path) -> None:
    """It must not train, must say why, and must not end: the controller decides when it is terminated."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(
                prepare_script=here.script("import sys; print('no space on the volume'); sys.exit(9)"),
                prepare_attempts=2,
            )
            async with living(here.dependencies()) as node:
                await wait_until(lambda: len(here.reports.sent) >= 2, "the failure is reported again and again")
                assert not node.done()
            await coordinator.stop()
            assert here.reports.outcomes() == {"prepare_failed"}
            assert "exit code 9" in here.reports.sent[0].reason
            assert "no space on the volume" in here.reports.sent[0].reason
            assert here.workers_started() == []
            assert coordinator.hellos == []

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["an empty file", "the command"])
def test_a_node_whose_preparation_failed_joins_once_a_person_marks_it(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person has brought the data by hand; the controller hears by whose word the node is prepared."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.metadata.values["dynamic/instance-identity/document"] = '{"pendingTime": "2026-01-02T03:04:05Z"}'
            here.configure(prepare_script=here.script("raise SystemExit(9)"), prepare_attempts=1)
            marker = marker_path(str(here.mount), "127.0.0.1")
            async with living(here.dependencies()):
                await wait_until(lambda: here.reports.sent, "the failure is reported")
                if way == "the command":
                    assert await mark_prepared(here.dependencies()) == 0
                    assert f"{INSTANCE} of cluster demo is marked as prepared: {marker}" in capsys.readouterr().out
                else:
                    (old := tmp_path / "old").touch()
                    os.utime(old, (0, 1_700_000_000))
                    old.rename(marker)  # the node looks at any moment, and would see one that is new
                    seen = len(here.reports.sent)
                    await wait_until(lambda: len(here.reports.sent) > seen + 3, "it is looked at several times")
                    assert here.reports.outcomes() == {"prepare_failed"}, (
                        "an empty file of an earlier life says nothing"
                    )
                    marker.touch()
                await wait_until(lambda: here.workers_started(), "the worker is started")
            assert await mark_prepared(here.dependencies()) == 0
            assert "nothing to do" in capsys.readouterr().out
            await coordinator.stop()
            content = Marker.model_validate_json(marker.read_text())
            assert (content.instance_id, content.by_hand) == (INSTANCE, True)
            assert here.reports.sent[-1].outcome == "prepared"
            by = MarkerState.MARKED if way == "the command" else MarkerState.BY_HAND
            assert here.reports.sent[-1].reason == by.value

    asyncio.run(scenario())


@pytest.mark.parametrize("base", [False, True], ids=["elastic", "base"])
def test_a_node_whose_preparation_failed_goes_on_when_its_script_is_mended(tmp_path: Path, base: bool) -> None:
    """People mend the file on the volume; to look for each node that had failed, and to reboot it, was theirs too."""

    async def scenario() -> None:
        with world(tmp_path, **(BASE_TAGS if base else {})) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            broken = here.script("raise SystemExit(9)")
            digest = script_digest(broken)
            here.configure(prepare_script=broken, prepare_attempts=1)
            async with living(here.dependencies()):
                await wait_until(lambda: len(here.reports.sent) > 2, "the failure is reported, and nothing is tried")
                assert {(one.outcome, one.script) for one in here.reports.sent} == {("prepare_failed", digest)}
                assert len(here.layout.prepare_tries_file.read_text().splitlines()) == 1
                mended = script_digest(here.script("print('mended')"))
                await wait_until(here.workers_started, "the worker is started")
                assert here.reports.sent[-1].outcome == "prepared"
                assert here.reports.sent[-1].script == mended
            await coordinator.stop()

    asyncio.run(scenario())


def test_a_base_node_says_when_prepare_data_is_another_one_and_elastic_nodes_leave_that_to_it(tmp_path: Path) -> None:
    """By that the controller lets a group launch again whose nodes had failed alike: none of those is there to look."""

    async def scenario(**tags: str) -> list[str]:
        (place := tmp_path / ("base" if tags else "elastic")).mkdir()
        with world(place, **tags) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            first = here.script("print('one')")
            digests = [script_digest(first)]
            here.configure(prepare_script=first)
            async with living(here.dependencies(script_check_seconds=0.05)):
                await wait_until(here.workers_started, "the worker is started")
                if tags:
                    await wait_until(lambda: any(one.script for one in here.reports.alive), "it says which there is")
                digests.append(script_digest(here.script("print('two')")))
                if tags:
                    await wait_until(lambda: here.reports.alive[-1].script == digests[1], "it says that it is another")
                assert {one.outcome for one in here.reports.sent} == {"prepared"}, "it is prepared all the while"
            await coordinator.stop()
            digests_reported = [one.script for one in here.reports.alive if one.script]
            assert digests_reported == (digests if tags else [])
            return digests_reported

    asyncio.run(scenario(**BASE_TAGS))
    asyncio.run(scenario())


def test_a_node_that_prepares_gives_signs_of_life_again_and_again(tmp_path: Path) -> None:
    """Its launch is kept alive only once it was heard of: one lost event must not cost a download of hours."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            go = tmp_path / "go"
            here.configure(
                prepare_script=here.script(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)")
            )
            async with living(here.dependencies(sign_of_life_seconds=0.05)):
                await wait_until(lambda: len(here.reports.alive) > 2, "it says that it lives")
                assert len({one.at for one in here.reports.alive}) == 1, "a repetition is no news"
                assert here.reports.alive[0].reason == "prepare-data runs"
                go.touch()
                await wait_until(lambda: here.reports.sent, "it is prepared")

    asyncio.run(scenario())


def test_what_keeps_a_person_from_marking_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with world(tmp_path) as here:
        here.configure(prepare_script=str(tmp_path / "nowhere.py"))
        assert asyncio.run(mark_prepared(here.dependencies())) == CONFIGURATION
        assert f"mark-prepared: No such file or directory: {tmp_path / 'nowhere.py'}" in capsys.readouterr().err
        here.parameters.values.clear()
        assert asyncio.run(mark_prepared(here.dependencies())) == TRY_AGAIN
        assert "is demo the name of a cluster in this region" in capsys.readouterr().err


def test_restart_of_the_bootstrap_continues(tmp_path: Path) -> None:
    """A second life of the same instance: prepare-data does not run again, the attempt has grown, the worker comes
    back.
    """

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"))
            async with living(here.dependencies()):
                await wait_until(lambda: len(here.workers_started()) == 1, "the worker is started")
            async with living(here.dependencies()):
                await wait_until(lambda: len(here.workers_started()) == 2, "the worker is started again")
            await coordinator.stop()
            assert (tmp_path / "runs").read_text() == "x"
            assert [hello.attempt for hello in coordinator.hellos] == [1, 2]

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_a_retired_node_does_not_prepare_again_though_its_script_was_mended(tmp_path: Path) -> None:
    """It was spared by its marker, which a mended script voids: hours of work for a machine that is about to go."""

    async def scenario() -> None:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script("print('made the data')"))
            async with living(here.dependencies()):
                await wait_until(lambda: len(here.workers_started()) == 1, "the worker is started")
            async with living(here.dependencies()) as node:
                await wait_until(lambda: len(here.workers_started()) == 2, "the worker is started again")
                here.script(f"open({str(tmp_path / 'again')!r}, 'w')")
                await coordinator.retire()
                assert await node == RETIRED
            await coordinator.stop()
            assert not (tmp_path / "again").exists()

    asyncio.run(scenario())


def test_bad_configuration_ends_with_an_error_that_names_the_field(tmp_path: Path) -> None:
    """Trying again cannot help; a person must find the field."""
    with world(tmp_path) as here:
        here.configure(prepare_attempts=0, servers_per_base="many")
        code = asyncio.run(run_node(here.dependencies()))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "field prepare_attempts" in logged
    assert "field servers_per_base" in logged


def test_unknown_cluster_is_an_error_after_bounded_tries(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        del here.parameters.values[parameter("demo", "node")]
        code = asyncio.run(run_node(here.dependencies()))
        logged = here.logged()
    assert code == TRY_AGAIN
    assert "the parameter /dyntrain/demo/node does not exist" in logged


def test_missing_volume_is_an_error_after_bounded_tries(tmp_path: Path) -> None:
    """Without this the marker and the data would go to the root disk of the instance."""
    with world(tmp_path) as here:
        here.configure(mount=str(tmp_path / "nowhere"))
        code = asyncio.run(run_node(here.dependencies()))
        logged = here.logged()
    assert code == TRY_AGAIN
    assert "nowhere does not exist" in logged


def test_log_lines_are_json_with_cluster_instance_and_attempt(tmp_path: Path) -> None:
    """Without them one cannot search the logs of many nodes."""

    async def scenario() -> str:
        with world(tmp_path) as here:
            async with living(here.dependencies()):
                await wait_until(lambda: here.reports.sent, "the node is prepared")
            return here.layout.node_log.read_text()

    lines = [json.loads(line) for line in asyncio.run(scenario()).splitlines()]
    prepared = next(line for line in lines if line["message"] == "prepared")
    assert (prepared["cluster"], prepared["instance"], prepared["attempt"]) == ("demo", INSTANCE, 1)
